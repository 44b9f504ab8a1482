"""A linear model that all ranks train together, with SGD.

DistributedDataParallel and torch.optim import torch._dynamo, which takes as long as PyTorch itself; so only programs that were
started with --ddp use them. The others average the gradients themselves, which shows the same of ddrun: a store, a group, and
what the ranks compute together."""

import torch
import torch.distributed as dist


class Model:
    def __init__(self, inputs, rate, ddp):
        self.module = torch.nn.Linear(inputs, 1)
        self.rate = rate
        self.optimizer = None
        if ddp:
            self.module = torch.nn.parallel.DistributedDataParallel(self.module)
            self.optimizer = torch.optim.SGD(self.module.parameters(), lr=rate)
        else:
            for p in self.module.parameters():
                dist.broadcast(p.data, 0)

    def backward(self, data, wanted):
        """Make the gradients, the same on all ranks."""
        self.module.zero_grad()
        torch.nn.functional.mse_loss(self.module(data), wanted).backward()
        if self.optimizer is None:
            for p in self.module.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()

    def step(self):
        if self.optimizer is not None:
            self.optimizer.step()
            return
        with torch.no_grad():
            for p in self.module.parameters():
                p -= self.rate * p.grad

    def gradient(self):
        return torch.cat([p.grad.flatten() for p in self.module.parameters()])

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.module.parameters()])


def equal_everywhere(tensor):
    """Return whether all ranks have the same tensor; all ranks call this together."""
    everybodys = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, tensor)
    return all(torch.equal(tensor, other) for other in everybodys)
