"""The virtual clock against simpy: pip install simpy, then python bench/time_level/clock_against_simpy.py [events]

512 sources, each waiting for its own next event (one per completion of a trajectory), two million by default; simpy
both as processes (its usual style) and as bare callbacks. Prints the best of three, in seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import simpy

from entr_lab.sim.clock import VirtualClock

SOURCES = 512


def own(events: int) -> None:
    clock, left = VirtualClock(), [events]

    def fire(source: int) -> None:
        left[0] -= 1
        if left[0] > 0:
            clock.after(1.0 + 1e-3 * source, fire, source)
        else:
            clock.stop()

    for source in range(SOURCES):
        clock.at(0.0, fire, source)
    clock.run()


def processes(events: int) -> None:
    env, left = simpy.Environment(), [events]
    over = env.event()

    def run(source: int):
        while left[0] > 0:
            yield env.timeout(1.0 + 1e-3 * source)
            left[0] -= 1
        if not over.triggered:
            over.succeed()

    for source in range(SOURCES):
        env.process(run(source))
    env.run(until=over)


def callbacks(events: int) -> None:
    env, left = simpy.Environment(), [events]
    over = env.event()

    def fire(event: simpy.Event) -> None:
        left[0] -= 1
        if left[0] > 0:
            env.timeout(1.0 + 1e-3 * event.value, event.value).callbacks.append(fire)
        elif not over.triggered:
            over.succeed()

    for source in range(SOURCES):
        env.timeout(0.0, source).callbacks.append(fire)
    env.run(until=over)


def seconds(run: Callable[[int], None], events: int) -> float:
    start = time.process_time()
    run(events)
    return time.process_time() - start


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    for run in (own, processes, callbacks):
        print(f"{run.__name__:10s} {min(seconds(run, events) for _ in range(3)):6.2f} s for {events:,} events")


if __name__ == "__main__":
    main()
