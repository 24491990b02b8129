"""Train the small language model with KPOP on several processes, each with a shard of it (FSDP2).

Parameters are DTensors, which the optimizer recognizes: shards travel to a matrix's owner and back.

    torchrun --nproc-per-node 2 examples/train_lm_fsdp2.py
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from distributed_training import arguments, seeded_model, start, train
from kpop_kernels.optim import KPOP, rules_of, state_bytes


def main() -> None:
    """Train as the command line says."""
    options = arguments(__doc__.partition("\n")[0])
    device = start()
    model = seeded_model(options.seed).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = KPOP(model.named_parameters(), lr=options.lr, rules=rules_of(model))
    optimizer.attach(model)
    train(model, model, optimizer, options, device)
    print(f"rank {dist.get_rank()}: {state_bytes(optimizer)} bytes of state", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
