"""Readable names for runs: two words and a digit."""

from __future__ import annotations

from typing import Final

from perdure import clock

_ADJECTIVES: Final = """
    amber bold brave bright brisk calm clear clever cool crisp deft dry eager early fair fast fine firm fond free
    fresh gentle glad gold grand green happy hardy hazel ivory jolly keen kind late light lively lucky mellow
    merry mild misty neat nimble noble olive pale plain polar proud quick quiet rapid ready regal rosy royal ruby
    rustic sharp shy silent silver sleek slow small smart smooth snowy soft solar spry steady still stout sunny
    swift tame tidy vivid warm wild wise young
"""
_NOUNS: Final = """
    ant ape auk bat bear bee boar bug carp cat chub clam cod colt crab crane crow cub dace deer doe dove duck eel
    egret elk emu ewe falcon fawn finch fox frog gnu goat goose gull hare hawk hen heron ibex ibis jay kite kiwi
    koala lamb lark lemur lion loon lynx mink mole moose moth mule newt orca oriole otter owl ox panda perch pika
    pony puma quail rail ram raven robin rook seal shrew skink sloth snail stag stoat stork swan swift tapir teal
    tern toad trout viper vole wasp whale wolf wren yak zebra
"""


def new_name() -> str:
    """A name a person can remember and type, such as swift-otter-7."""
    return f"{clock.pick(_ADJECTIVES.split())}-{clock.pick(_NOUNS.split())}-{clock.pick('123456789')}"


def new_run_id() -> str:
    """A fresh id: the time it was made, so that ids sort, and enough chance to be unique."""
    return f"{int(clock.wall_seconds() * 1000):012x}-{clock.new_token(12)}"
