"""What a script does that does not keep all of its optimizers, as a function for ranks that were started."""

from __future__ import annotations

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
