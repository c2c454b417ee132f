"""`nnburst demo`: networks at work in another process: digits, a wake word, faces, speech, noise."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, writable_file
from nnburst.hal.errors import InvalidArgument

#: The options of each demo; what is given to another one is refused.
_OPTIONS = {
    "digits": ("rounds",),
    "wakeword": ("clip", "real_time"),
    "face": ("rounds", "image"),
    "voice": ("clip", "real_time", "executor"),
    "noise": ("clip", "real_time", "executor", "output"),
}


def prepare_parser(subparsers: Subparsers) -> None:
    """Add `nnburst demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="recognise digits, spot a phrase, find a face, mark speech or suppress noise in another process",
        description=__doc__,
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=list(_OPTIONS),
        default="digits",
        help="recognise digits by every route and survive a killed driver (default); spot a phrase in"
        " a stream of sound; find a face in photographs; mark where a sound has speech; take the noise"
        " out of a sound",
    )
    parser.add_argument(
        "--rounds",
        type=at_least_one,
        help="digits, face: how often every image is executed (default: 5, 20)",
    )
    parser.add_argument(
        "--clip",
        type=Path,
        metavar="WAV",
        help="wakeword, voice, noise: a recording of your own, 16 kHz, 16 bits, one channel",
    )
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="wakeword, voice, noise: hops come when a microphone would have them (every 10, 32, 8 ms)",
    )
    parser.add_argument("--executor", help="voice, noise: executor of the driver (default: litert)")
    parser.add_argument(
        "--output",
        type=writable_file,
        metavar="WAV",
        help="noise: write the sound without the noise",
    )
    parser.add_argument(
        "--image", type=Path, metavar="FILE", help="face: a picture of your own instead"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 1 if it does not find what it should, or finds more."""
    for option in {name for names in _OPTIONS.values() for name in names}:
        if getattr(args, option) and option not in _OPTIONS[args.what]:
            raise InvalidArgument(
                f"--{option.replace('_', '-')} is not an option of demo {args.what}"
            )
    if args.what == "wakeword":
        from nnburst.cli.demo_wakeword import hear

        return hear(args.json, args.clip, real_time=args.real_time)
    if args.what == "face":
        from nnburst.cli.demo_face import find

        return find(args.json, args.image, args.rounds or 20)
    executor = args.executor or "litert"
    if args.what == "voice":
        from nnburst.cli.demo_voice import mark

        return mark(args.json, args.clip, real_time=args.real_time, executor=executor)
    if args.what == "noise":
        from nnburst.cli.demo_noise import suppress

        return suppress(
            args.json, args.clip, args.output, real_time=args.real_time, executor=executor
        )
    from nnburst.cli.demo_digits import recognise

    return recognise(args.json, args.rounds or 5)
