"""The practice pool's vocabulary: 128 short words, none contained in another and none a shell command.

So file names built from them (`word.txt`) sort the same way in every locale, and grep for one word never
finds another. A byte-level BPE trained on the tasks gives each word one token, so a tiny model can spend its
capacity on what to do rather than on spelling.
"""

_WORDS = """
    acorn amber apple arrow badge baker beach bell berry bird boat bone bread brick broom brush bunny cabin
    camel candy cedar cherry cliff cloud clove coal coral crane crown daisy deer desk dove eagle ember fern
    ferry flame flute forest fox frog garden glass globe goat goose grape hammer hazel hedge heron hill
    honey horse island ivory jacket jelly jewel juice kettle kite ladder lake lamp lemon lily lion lotus
    maple melon mint moon moss mule needle nest oak ocean olive onion orbit otter owl panda peach pearl
    piano pigeon pine planet plum pony poppy quail rabbit raven river robin rocket rose sail salmon shell
    silver snow spider spoon star stone sugar swan tiger tower tulip turtle valley velvet violin wagon
    walnut whale willow window wolf yarn zebra
"""

WORDS: tuple[str, ...] = tuple(_WORDS.split())
EXTENSIONS: tuple[str, ...] = ("txt", "log", "csv", "md")
