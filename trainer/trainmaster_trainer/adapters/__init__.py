"""Say to Trainmaster what training libraries know: one file for each library, with a callback of its own kind.

They need nothing beyond the library and `trainmaster_trainer.session`, and do nothing outside of Trainmaster.
"""
