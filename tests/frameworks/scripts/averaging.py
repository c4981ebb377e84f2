"""Local SGD by raw collectives: each process steps by itself, and all take the mean of their weights at times."""

import line
import torch
import torch.distributed as dist

EVERY = 5
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
gathered = [torch.zeros(1) for _ in range(size)]
dist.all_gather(gathered, torch.tensor([rank + 1.0]))
scattered = torch.zeros(1)
dist.scatter(scattered, [torch.tensor([10.0 * other]) for other in range(size)] if rank == 0 else None, src=0)
assert scattered.item() == 10.0 * rank
kept = line.FOLDER / "averaged.pt"


def step(model, rows):
    """Take one step of one process."""
    model.zero_grad()
    line.loss_of(model(rows[0]), rows[1]).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(line.RATE * parameter.grad)


def as_if_alone():
    """Return what one process makes of it that has a model for each."""
    models = [line.model() for _ in range(size)]
    for number in range(line.STEPS):
        for other, model in enumerate(models):
            step(model, line.share(other, size))
        if (number + 1) % EVERY == 0:
            means = [sum(same) / size for same in zip(*(model.parameters() for model in models), strict=True)]
            for model in models:
                torch.nn.utils.vector_to_parameters(torch.cat([mean.flatten() for mean in means]), model.parameters())
    return [parameter.detach() for parameter in models[0].parameters()]


mine, first = line.model(), 0
if kept.exists():
    first, state = torch.load(kept)
    mine.load_state_dict(state)
for number in range(first, line.STEPS):
    line.maybe_die(number, rank == size - 1)
    step(mine, line.share(rank, size))
    if (number + 1) % EVERY == 0:
        for parameter in mine.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= size
    if (number + 1) % line.SAVE_EVERY == 0 and rank == 0:
        torch.save((number + 1, mine.state_dict()), kept.with_suffix(".new"))
        kept.with_suffix(".new").replace(kept)
    dist.barrier()
line.tell(mine.parameters(), first, as_if_alone(), total=sum(gathered).item())
dist.destroy_process_group()
