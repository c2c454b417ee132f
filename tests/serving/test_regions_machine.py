"""Regions of several users in any order of registering, use, unregistering and death keep to their model.

Objects shrink, grow, change their mode and are unlinked while they are registered. After each step every user
has exactly the regions that it registered, and this process a descriptor for each, and no more.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from nnburst.hal.environment import EXAMPLES
from nnburst.hal.errors import InvalidArgument
from nnburst.serving.regions import Regions

OWNER = os.geteuid()
USERS = (OWNER, 65533, 65534)
FOLDER = Path("/dev/shm")
MOST = 64
#: Group and others may read and write.
ALL_WRITE = 0o066
_numbers = count()

users = st.sampled_from(USERS)
names = st.sampled_from(("a", "b", "c"))
#: Mostly such that something fits.
offsets = st.sampled_from((0, 0, 0, 1, 8, MOST, -1))
sizes = st.sampled_from((1, 8, 16, 32, MOST, MOST, MOST + 1, 0, -1))


@dataclass
class Object:
    """Shared memory of the kernel, under a name or only for those that have it open."""

    owner: int
    mode: int
    data: bytearray


@dataclass
class Registered:
    """A region as its user knows it."""

    object: Object
    offset: int
    size: int


class RegionsMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.prefix = f"nnburst_machine_{os.getpid()}_{next(_numbers)}_"
        self.regions = Regions()
        self.objects: dict[str, Object] = {}
        self.known: dict[int, dict[str, Registered]] = {user: {} for user in USERS}
        for name in ("a", "b"):
            self.make(name, OWNER, 0o666, MOST)
            for user in USERS[:2]:
                self.register(user, name, name, 8, 32)

    def path(self, name: str) -> Path:
        return FOLDER / f"{self.prefix}{name}"

    @rule(name=names, owner=users, mode=st.sampled_from((0o600, 0o660, 0o606, 0o666)), size=sizes)
    def make_object(self, name: str, owner: int, mode: int, size: int) -> None:
        self.make(name, owner, mode, max(size, 0))

    def make(self, name: str, owner: int, mode: int, size: int) -> None:
        if name in self.objects or (owner != OWNER and OWNER != 0):
            return  # only root makes objects of others
        with self.path(name).open("xb") as file:
            file.truncate(size)
        os.chown(self.path(name), owner, -1)
        self.path(name).chmod(mode)
        self.objects[name] = Object(owner, mode, bytearray(size))

    @rule(name=names)
    def die(self, name: str) -> None:
        """The process that made it has ended and taken the name away."""
        if self.objects.pop(name, None) is not None:
            self.path(name).unlink()

    @rule(name=names, size=sizes)
    def resize(self, name: str, size: int) -> None:
        found = self.objects.get(name)
        if found is not None and size >= 0:
            os.truncate(self.path(name), size)
            found.data[:] = found.data[:size].ljust(size, b"\0")

    @rule(name=names, mode=st.sampled_from((0o600, 0o666)))
    def change_mode(self, name: str, mode: int) -> None:
        if name in self.objects:
            self.path(name).chmod(mode)
            self.objects[name].mode = mode

    @precondition(lambda self: any(each.data for each in self.objects.values()))
    @rule(data=st.data(), user=users, name=names)
    def register_a_part(self, data: st.DataObject, user: int, name: str) -> None:
        keys = [key for key, each in self.objects.items() if each.data]
        key = data.draw(st.sampled_from(keys))
        size = len(self.objects[key].data)
        offset = data.draw(st.integers(0, size - 1))
        self.register(user, name, key, offset, data.draw(st.integers(1, size - offset)))

    @rule(user=users, name=names, key=names, offset=offsets, size=sizes)
    def register_anything(self, user: int, name: str, key: str, offset: int, size: int) -> None:
        self.register(user, name, key, offset, size)

    def register(self, user: int, name: str, key: str, offset: int, size: int) -> None:
        found = self.objects.get(key)
        may = found is not None and (
            user == found.owner or stat.S_IMODE(found.mode) & ALL_WRITE == ALL_WRITE
        )
        fits = found is not None and offset >= 0 < size and offset + size <= len(found.data)
        if found is not None and may and fits and name not in self.known[user]:
            self.regions.of(user).register(name, f"/{self.prefix}{key}", offset, size)
            self.known[user][name] = Registered(found, offset, size)
        else:
            with pytest.raises(InvalidArgument):
                self.regions.of(user).register(name, f"/{self.prefix}{key}", offset, size)

    def region(self, data: st.DataObject) -> tuple[int, str, Registered]:
        """One that is registered, with its user and name."""
        return data.draw(
            st.sampled_from(
                [
                    (user, name, region)
                    for user, known in self.known.items()
                    for name, region in known.items()
                ]
            )
        )

    @precondition(lambda self: any(self.known.values()))
    @rule(data=st.data(), offset=offsets)
    def read(self, data: st.DataObject, offset: int) -> None:
        user, name, found = self.region(data)
        size = found.size - offset + data.draw(st.sampled_from((0, 0, -1, 1)))
        begin = found.offset + offset
        if self.reaches(found, offset, size):
            expected = bytes(found.object.data[begin : begin + size])
            assert self.regions.of(user).read(name, offset, size) == expected
        elif size != 0:
            with pytest.raises(InvalidArgument):
                self.regions.of(user).read(name, offset, size)

    @precondition(lambda self: any(self.known.values()))
    @rule(data=st.data(), offset=offsets, byte=st.binary(min_size=1, max_size=1))
    def write(self, data: st.DataObject, offset: int, byte: bytes) -> None:
        user, name, found = self.region(data)
        size = max(0, found.size - offset + data.draw(st.sampled_from((0, 0, -1, 1))))
        if self.reaches(found, offset, size):
            self.regions.of(user).write(name, offset, byte * size)
            begin = found.offset + offset
            found.object.data[begin : begin + size] = byte * size
        else:
            with pytest.raises(InvalidArgument):
                self.regions.of(user).write(name, offset, byte * size)

    @rule(user=users, name=names)
    def use_another_users(self, user: int, name: str) -> None:
        if name not in self.known[user]:
            for use in (
                lambda own: own.read(name, 0, 1),
                lambda own: own.write(name, 0, b"x"),
                lambda own: own.listed(name),
            ):
                with pytest.raises(InvalidArgument):
                    use(self.regions.of(user))

    @staticmethod
    def reaches(region: Registered, offset: int, size: int) -> bool:
        """Whether so many bytes are in the region, and in the object as it is now."""
        inside = offset >= 0 and size >= 0 and offset + size <= region.size
        end = region.offset + offset + size
        return inside and end <= len(region.object.data)

    @rule(user=users, name=st.sampled_from(("a", "b", "c", "")))
    def unregister(self, user: int, name: str) -> None:
        self.regions.of(user).unregister(name)
        for each in [name] if name else list(self.known[user]):
            self.known[user].pop(each, None)

    @invariant()
    def every_user_has_its_own_regions(self) -> None:
        for user, known in self.known.items():
            listed = self.regions.of(user).listed()
            assert {name: (each.offset, each.size) for name, each in listed.items()} == {
                name: (each.offset, each.size) for name, each in known.items()
            }

    @invariant()
    def every_region_has_one_descriptor(self) -> None:
        assert self.descriptors() == sum(map(len, self.known.values()))

    def descriptors(self) -> int:
        found = 0
        for each in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing itself
                found += os.readlink(f"/proc/self/fd/{each}").startswith(str(self.path("")))
        return found

    def teardown(self) -> None:
        for user in USERS:
            self.regions.of(user).unregister("")
        for name in self.objects:
            self.path(name).unlink()
        assert self.descriptors() == 0


TestRegions = RegionsMachine.TestCase
TestRegions.settings = settings(
    max_examples=EXAMPLES.read() if EXAMPLES.is_set else 20, stateful_step_count=40, deadline=None
)
