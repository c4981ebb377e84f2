"""Tell a program that wants a GPU which its replica was not given: what would be a node's fault is the job's own.

The error is the same as that of a node whose driver is broken; what tells them apart is what the job asks for.
"""

from trainmaster.core.failures import signatures
from trainmaster.core.situation.slots import Slot
from trainmaster.wire import names
from trainmaster.wire.messages import ExitReport

_FIELDS = {names.WORKER: "workers", names.PARAMETER_SERVER: "parameterServers"}


def cure(slot: Slot, report: ExitReport) -> str:
    """Return what to do where a rank wanted a GPU and its replica has none by the job; empty: that is not so."""
    said = f"{report.error.type[:200]}: {report.error.message[:4000]}" if report.error and not report.hung else ""
    if not signatures.WANTS_A_DEVICE.match(said):
        return ""
    field = f"spec.{_FIELDS.get(slot.role, slot.role)}.gpus"
    if not slot.devices:
        return f"the job asks for no GPU: set {field} to the GPUs of each replica, or let the program use the CPU"
    if slot.replica and slot.replica.short_of_devices:
        return f"this machine has fewer GPUs than {field} asks for: lower it to 0 and let the program use the CPU"
    return ""
