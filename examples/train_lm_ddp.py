"""Train the small language model with KPOP on several processes, each with a copy of it (DDP).

Every matrix has one owner, which decomposes its factors and keeps its state; the others receive what it computed.

    torchrun --nproc-per-node 2 examples/train_lm_ddp.py
"""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from distributed_training import arguments, seeded_model, start, train
from kpop_kernels.distributed import shard
from kpop_kernels.optim import KPOP, rules_of, state_bytes


def main() -> None:
    """Train as the command line says."""
    options = arguments(__doc__.partition("\n")[0])
    device = start()
    model = seeded_model(options.seed).to(device)
    replica = DistributedDataParallel(model)
    optimizer = shard(KPOP(model.named_parameters(), lr=options.lr, rules=rules_of(model)))
    optimizer.attach(model)
    train(model, replica, optimizer, options, device)
    print(f"rank {dist.get_rank()}: {state_bytes(optimizer)} bytes of state", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
