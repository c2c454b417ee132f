"""`python -m tools.host_simulation`: the first bottleneck of many hosts, and simulated clusters."""

from __future__ import annotations

import argparse

from tools.host_simulation.model import Costs, bottlenecks, simulate


def main() -> None:
    """Print both, from measured costs; each can be given."""
    parser = argparse.ArgumentParser(prog="python -m tools.host_simulation", description=__doc__)
    parser.add_argument("--hosts", type=int, default=10_000)
    for name, default in vars(Costs()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default)
    args = parser.parse_args()
    costs = Costs(**{name: getattr(args, name) for name in vars(Costs())})
    found = bottlenecks(costs, args.hosts)
    for limit, hosts in sorted(found.items(), key=lambda each: each[1] or args.hosts + 1):
        print(f"{hosts or f'beyond {args.hosts}':>12} hosts: {limit}")
    print(f"\n{'hosts':>8}{'started':>10}{'wait':>8}{'recovered':>11}{'look-up':>9}{'load':>8}")
    count = 10
    while count <= args.hosts:
        run = simulate(count, costs)
        times = f"{run.started:10.1f}{run.longest_wait:8.1f}{run.recovered:11.1f}{run.look_up:9.2f}"
        print(f"{count:8}{times}{run.load:8.1%}")
        count *= 10


if __name__ == "__main__":
    main()
