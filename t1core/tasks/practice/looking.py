"""Look-first families: the words to act on stand only in the box, so the agent must read before it writes."""

from t1core.tasks.practice import checks, looks
from t1core.tasks.practice.draw import Draw, listed, text_of
from t1core.tasks.practice.exercise import Exercise, silent


def todo(draw: Draw, level: int) -> Exercise:
    """A list of file names and words: write each word to its file."""
    todo_name = draw.name()
    pairs = [(draw.name(), draw.word()) for _ in range((2, 3, 5)[level - 1])]
    files = {todo_name: text_of([f"{name} {word}" for name, word in pairs])}
    wanted = [
        check for name, word in pairs for check in (checks.is_file(name), checks.holds(name, text=word))
    ]
    instruction = draw.phrase(
        f"read {todo_name}. Each line has a file name and a word. Write the word to that file.",
        f"each line of {todo_name} names a file and a word. Make each file with its word.",
    )
    turns = (
        looks.turn(looks.cat(files, names=[todo_name])),
        silent(*[f"echo {w} > {name}" for name, w in pairs]),
    )
    return Exercise(instruction, files, tuple(wanted), turns)


def config(draw: Draw, level: int) -> Exercise:
    """Settings that name a directory, a file in it and the word it must hold."""
    names = draw.names(level, extension="cfg")
    settings = [(draw.word(), draw.name(), draw.word()) for _ in names]
    files = {
        name: text_of([f"dir={folder}", f"file={file}", f"word={word}"])
        for name, (folder, file, word) in zip(names, settings, strict=True)
    }
    wanted, commands = [], ["mkdir -p " + " ".join(folder for folder, _, _ in settings)]
    for folder, file, word in settings:
        path = f"{folder}/{file}"
        wanted += [checks.is_folder(folder), checks.is_file(path), checks.holds(path, text=word)]
        commands.append(f"echo {word} > {path}")
    each = "for each: make" if level > 1 else "make"
    instruction = draw.phrase(
        f"read {listed(names)}, {each} its dir, and in it its file with its word.",
        f"do what {listed(names)} set, {each} the dir, and the file in it with the word.",
    )
    return Exercise(
        instruction, files, tuple(wanted), (looks.turn(looks.cat(files, names=names)), silent(*commands))
    )


def search(draw: Draw, level: int) -> Exercise:
    """Files known only by a word in them, renamed."""
    num_wanted, num_files = ((1, 4), (2, 5), (3, 6))[level - 1]
    ending = draw.extension()
    files = {
        name: text_of([f"{draw.word()} {draw.word()}"]) for name in draw.names(num_files, extension=ending)
    }
    sources = draw.shuffled(list(files))[:num_wanted]
    keys = [files[source].split()[draw.number(0, 1)] for source in sources]
    targets = draw.names(num_wanted)
    wanted = []
    for source, target in zip(sources, targets, strict=True):
        wanted += [
            checks.is_file(target),
            checks.holds(target, text=files[source]),
            checks.is_moved(source, to=target),
        ]
    pairs = list(zip(keys, targets, strict=True))
    instruction = draw.phrase(
        f"among the {ending} files, rename "
        + listed([f"the one with {key} to {target}" for key, target in pairs])
        + ".",
        f"find the {ending} files with these words and rename them: "
        + listed([f"{key} to {target}" for key, target in pairs])
        + ".",
    )
    look = looks.turn(*[looks.holders(files, word=key, extension=ending) for key in keys])
    act = silent(*[f"mv {source} {target}" for source, target in zip(sources, targets, strict=True)])
    return Exercise(instruction, files, tuple(wanted), (look, act))


def label(draw: Draw, level: int) -> Exercise:
    """Files renamed to the word they hold."""
    ending = draw.extension()
    names = draw.names((2, 3, 5)[level - 1], extension=ending)
    files = {name: text_of(draw.words(1)) for name in sorted(names)}
    wanted, commands = [], []
    for name, text in files.items():
        target = f"{text.strip()}.{ending}"
        wanted += [checks.holds(target, text=text), checks.is_moved(name, to=target)]
        commands.append(f"mv {name} {target}")
    instruction = draw.phrase(
        f"each {ending} file holds one word. Rename each to its word, keeping the ending.",
        f"rename every {ending} file to the word in it, keeping the ending.",
    )
    return Exercise(
        instruction,
        files,
        tuple(wanted),
        (looks.turn(looks.contents(files, extension=ending)), silent(*commands)),
    )


def count(draw: Draw, level: int) -> Exercise:
    """Files renamed to their number of lines."""
    ending = draw.extension()
    names = sorted(draw.names((2, 3, 5)[level - 1], extension=ending))
    sizes = draw.numbers(len(names), low=1, high=9)
    files = {name: text_of(draw.words(size)) for name, size in zip(names, sizes, strict=True)}
    wanted, commands = [], []
    for name, size in zip(names, sizes, strict=True):
        target = f"{size}.{ending}"
        wanted += [checks.holds(target, text=files[name]), checks.is_moved(name, to=target)]
        commands.append(f"mv {name} {target}")
    instruction = draw.phrase(
        f"count the lines of each {ending} file. Rename each to its count, keeping the ending.",
        f"rename every {ending} file to its number of lines, keeping the ending.",
    )
    look = looks.turn(looks.line_counts(files, names=names, pattern=f"*.{ending}"))
    return Exercise(instruction, files, tuple(wanted), (look, silent(*commands)))


def chain(draw: Draw, level: int) -> Exercise:
    """Each file holds a word and names the next file: read them in turn, then write the words."""
    names = draw.names((2, 3, 5)[level - 1])
    first, words, out = names[0], draw.words(len(names)), draw.name()
    following = [[f"next {name}"] for name in names[1:]] + [[]]
    files = {name: text_of([word, *more]) for name, word, more in zip(names, words, following, strict=True)}
    files |= {name: text_of(draw.words(1)) for name in draw.names(2)}
    wanted = [checks.is_file(out)]
    wanted += [checks.has_word(out, number=i + 1, text=word) for i, word in enumerate(words)]
    wanted.append(checks.holds(out, text=" ".join(words)))
    instruction = draw.phrase(
        f"start at {first}. Each file has a word and may name the next. Put the words on one line in {out}.",
        f"follow the files from {first}, each names the next. Put their words on one line in {out}.",
    )
    reads = [looks.turn(looks.cat(files, names=[name])) for name in names]
    return Exercise(instruction, files, tuple(wanted), (*reads, silent(f"echo {' '.join(words)} > {out}")))
