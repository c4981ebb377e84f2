"""What scripts do that do not keep all of what they have, as functions for ranks that were started."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.optim import lr_scheduler
from trainmaster_trainer import session
from trainmaster_trainer.group import Group


def late(group: Group) -> None:
    """Make one optimizer after session.state, of two that keep something."""
    model = nn.Linear(3, 2)
    kept = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = session.state(model=model, optimizer=kept, schedule=lr_scheduler.StepLR(kept, 10))
    state.restore()
    late_one = torch.optim.RMSprop(model.parameters(), lr=0.01)
    for step in range(1, 4):
        model(torch.ones(3)).sum().backward()
        kept.step()
        late_one.step()
        torch.optim.SGD(model.parameters(), lr=0.01).step()  # it keeps nothing
        state.step(step)


def early(group: Group, said: bool) -> None:
    """End after step 4 of 9, as by a rule of its own; where it is `said`, this is saved."""
    state = session.state(model=nn.Linear(3, 2))
    for step in range(state.restore() + 1, 5):
        session.report(step=step, total=9)
        state.step(step, last=said and step == 4)
    getattr(state, "_keeper")._finish(os.getpid())  # noqa: B009 as at the end of a process
