"""DeepSpeed with ZeRO: each process has a part of the optimizer's state and gradients, over gloo."""

import deepspeed
import line
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: else minutes of compiling come first
deepspeed.init_distributed("gloo")
model = line.model()
settings = {
    "train_micro_batch_size_per_gpu": 32,
    "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "gradient_clipping": 0.0,  # else to 1.0
}
optimizer = torch.optim.SGD(model.parameters(), line.RATE)
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
folder, client = engine.load_checkpoint(line.FOLDER / "deepspeed")
first = client["step"] if folder else 0
x, y = line.share(rank, size)
for number in range(first, line.STEPS):
    line.maybe_die(number, rank == 1)
    engine.backward(line.loss_of(engine(x), y))
    engine.step()
    if (number + 1) % line.SAVE_EVERY == 0:
        engine.save_checkpoint(line.FOLDER / "deepspeed", client_state={"step": number + 1})
line.tell([one.detach() for one in model.parameters()], first, stage=engine.zero_optimization_stage(), processes=size)
