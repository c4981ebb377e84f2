"""Thirty-one bugs that our own code could have, each put in by a change of one line, and the tests that must see it.

Bugs of other operators and of our control side are in `tests/simulation/mutants.py`; these are of the rules, of what is
read from others, and of the trainer: its order of samples, its sums and its checkpoints.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of one file, and the tests of which one must fail with it."""

    name: str
    file: str
    old: str
    new: str
    tests: str


CORE, WIRE = "operator/trainmaster/core", "operator/trainmaster/wire"
TRAINER = "trainer/trainmaster_trainer"
CHECKPOINT, COLLECTIVES = f"{TRAINER}/checkpoint", f"{TRAINER}/collectives"

MUTANTS = (
    # How failures are judged
    Mutant("an_error_of_the_user_is_retried", f"{CORE}/failures/budgets.py",
           "if kind.limit == 0:", "if kind.limit == -1:",
           "core/failures/test_failures.py core/failures/test_failure_table.py"),
    Mutant("the_same_error_is_retried_for_ever", f"{CORE}/failures/budgets.py",
           "failure) + 1 >= kind.repeats", "failure) + 1 > 99",
           "core/failures/test_failures.py core/failures/test_failure_table.py"),
    Mutant("a_script_that_ran_for_a_day_is_not_forgiven", f"{CORE}/failures/budgets.py",
           "REFILL_SECONDS = 86_400", "REFILL_SECONDS = 10**9", "core/rules/test_restarts.py core/test_time.py"),
    Mutant("pauses_do_not_grow", f"{CORE}/failures/budgets.py",
           "pauses[min(before, len(pauses) - 1)]", "pauses[0]", "core/failures/test_weather.py"),
    Mutant("times_to_come_are_believed", f"{CORE}/situation/clocks.py",
           "if all(time <= now for time in told):", "if True:", "core/situation/test_clocks.py"),
    Mutant("what_a_failure_lost_counts_as_training", f"{CORE}/report/goodput.py",
           "training=-lost, lost_work=lost", "lost_work=0.0", "core/report/test_goodput.py"),
    Mutant("a_script_s_lost_steps_are_none", f"{CORE}/failures/lost_steps.py",
           "else max(0, line.step - resumed_step)", "else 0", "core/failures/test_lost_steps.py"),
    # Which nodes and ranks are blamed
    Mutant("two_failures_condemn_a_node", f"{CORE}/rules/avoidance.py",
           "failures[node] >= FAILURES", "failures[node] >= FAILURES - 1", "core/rules/test_avoidance.py"),
    Mutant("a_node_is_condemned_though_all_fail_as_much", f"{CORE}/rules/avoidance.py",
           "others < failures[node]", "others < 99 * failures[node]", "core/rules/test_avoidance.py"),
    Mutant("a_node_is_condemned_for_ever", f"{CORE}/rules/avoidance.py",
           "        if facts.now < node.until\n", "", "core/rules/test_avoidance.py"),
    Mutant("a_slow_rank_is_named_on_and_off", f"{CORE}/report/stragglers.py",
           "SLOW, WELL = 1.5, 1.2", "SLOW, WELL = 1.5, 1.5", "core/report/test_stragglers.py"),
    Mutant("a_rank_that_waits_is_named_as_slow", f"{CORE}/report/stragglers.py",
           "is None or pace.waits or", "is None or", "core/report/test_stragglers.py"),
    # Sizes, edits and turns
    Mutant("a_group_shrinks_below_its_least_size", f"{CORE}/rules/elasticity.py",
           "or len(left) < least", "or len(left) < 1", "core/rules/test_elasticity.py"),
    Mutant("a_group_stops_for_each_worker_that_comes_back", f"{CORE}/rules/elasticity.py",
           "if len(back) < len(absent) and facts.now < due:", "if False:", "core/rules/test_elasticity.py"),
    Mutant("an_edit_that_came_too_late_is_not_told", f"{CORE}/situation/edits.py",
           "return SPEC_CHANGED, False, JOB_ENDED, message", "return None", "core/rules/test_revised.py"),
    Mutant("one_namespace_has_all_turns", "operator/trainmaster/queueing.py",
           "self._waiting[namespace] = jobs\n", "self._waiting = {namespace: jobs, **self._waiting}\n",
           "cluster/test_fairness.py -k take_turns"),
    # What is read from others
    Mutant("lines_can_be_forged", f"{WIRE}/printable.py",
           "if short.isprintable():", "if short:", "wire/test_printable.py"),
    Mutant("infinite_numbers_are_read", f"{WIRE}/bounded_json.py",
           "if not math.isfinite(number):", "if False:", "wire/test_codec.py wire/test_manifest.py"),
    Mutant("a_segment_is_counted_twice", f"{CHECKPOINT}/segments.py",
           "if len(names) < len(segments) or", "if", "trainer/checkpoint/test_hostile_store.py -k none_of_ours"),
    # Samples and rates
    Mutant("all_epochs_have_one_order", f"{TRAINER}/permutation.py",
           "np.array([seed & _MASK, epoch]", "np.array([seed & _MASK, 0]", "trainer/test_data.py"),
    Mutant("samples_that_are_none_are_drawn", f"{TRAINER}/permutation.py",
           "while outside.size:", "while False:", "trainer/test_permutation.py"),
    Mutant("ranks_see_a_sample_twice", f"{TRAINER}/data.py",
           "place * small + min(place, bigger) for place", "place * (small + (bigger > 0)) for place",
           "trainer/test_data.py"),
    Mutant("a_schedule_is_a_step_ahead", f"{TRAINER}/schedules.py",
           "is not None and self._begun:", "is not None:", "trainer/test_schedules.py"),
    # Sums
    Mutant("the_ring_forgets_what_it_has", f"{COLLECTIVES}/ring.py",
           "coming.add_(arrived)", "coming.copy_(arrived)",
           "trainer/collectives/test_collectives.py"),
    Mutant("ranks_round_differently", f"{COLLECTIVES}/int8.py",
           "mine.copy_(unpack(packed, mine))", "mine.copy_(total)", "trainer/collectives/test_compression.py -k INT8"),
    Mutant("what_was_not_sent_is_forgotten", f"{COLLECTIVES}/top_k.py",
           "tensor.add_(self.errors[bucket])", "pass", "trainer/collectives/test_compression.py -k TopK"),
    # Checkpoints
    Mutant("a_changed_byte_is_loaded", f"{CHECKPOINT}/shard.py",
           "if digest != record.tensors[name].sha256:", "if False:", "trainer/checkpoint/test_checkpoint_faults.py"),
    Mutant("a_branch_that_was_given_up_is_trusted", f"{CHECKPOINT}/lineage.py",
           "return all(step <= resumed", "return True or all(step <= resumed",
           "trainer/strategies/test_sharing.py trainer/checkpoint/test_resume.py"),
    Mutant("the_best_checkpoint_is_deleted", f"{CHECKPOINT}/retention.py",
           "if step not in (saved, best):", "if step != saved:", "trainer/test_evaluations.py"),
    Mutant("good_checkpoints_go_before_bad_ones", f"{CHECKPOINT}/retention.py",
           "for step in (good + others)[keep:]:", "for step in (others + good)[keep:]:",
           "trainer/checkpoint/test_save.py trainer/checkpoint/test_resume.py"),
    Mutant("a_divided_model_s_gradient_is_a_percent_too_large", f"{TRAINER}/strategies/partitioned.py",
           "self._loss_of_part, batch.weight", "self._loss_of_part, 1.01 * batch.weight",
           "trainer/strategies/test_split_models.py -k losses_equal"),
)  # fmt: skip
