"""Two processes of PyTorch that train one linear model with DistributedDataParallel over gloo."""

import os

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are set
rank, size = dist.get_rank(), dist.get_world_size()
rng = np.random.default_rng(0)
x = torch.from_numpy(rng.normal(size=(64, 8)))
y = x @ torch.arange(8.0, dtype=torch.float64)
mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1, bias=False).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    ((model(x[mine])[:, 0] - y[mine]) ** 2).mean().backward()
    optimizer.step()
found = model.module.weight.detach().numpy()[0]
assert np.allclose(found, np.arange(8.0), atol=1e-3), found
np.save(os.path.join(os.environ["RESULT_DIR"], f"model-{os.environ['LEARNER_ID']}.npy"), found)
print("torch", torch.__version__, "rank", rank, "of", size)
