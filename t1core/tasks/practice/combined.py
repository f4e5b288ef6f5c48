"""Held-out families: each combines skills that other families train, and is itself never trained on."""

from t1core.tasks.practice import checks, looks
from t1core.tasks.practice.draw import Draw, listed, text_of
from t1core.tasks.practice.exercise import Exercise, silent


def relocate(draw: Draw, level: int) -> Exercise:
    """Settings as in `config`, directories as in `nest`, then `move` and `append`."""
    names = draw.names(min(level, 2), extension="cfg")
    tops = [draw.word() for _ in names]
    plans = [(f"{top}/{draw.word()}" if level == 3 else top, draw.name(), draw.word()) for top in tops]
    files = {
        name: text_of([f"dir={folder}", f"file={file}", f"word={word}"])
        for name, (folder, file, word) in zip(names, plans, strict=True)
    }
    held = {file: text_of(draw.words(1)) for _, file, _ in plans}
    wanted = [checks.is_folder(top) for top in tops] if level == 3 else []
    commands = ["mkdir -p " + " ".join(folder for folder, _, _ in plans)]
    for folder, file, word in plans:
        path = f"{folder}/{file}"
        wanted += [checks.is_folder(folder), checks.is_moved(file, to=path)]
        wanted += [checks.begins(path, text=held[file]), checks.has_line(path, number=2, text=word)]
        commands += [f"mv {file} {folder}", f"echo {word} >> {path}"]
    each = "for each: make" if level > 1 else "make"
    instruction = draw.phrase(
        f"read {listed(names)}, {each} its dir, move its file there, and append its word to that file.",
        f"do what {listed(names)} set, {each} the dir, move the file into it, and append the word to it.",
    )
    turns = (looks.turn(looks.cat(files, names=names)), silent(*commands))
    return Exercise(instruction, files | held, tuple(wanted), turns)


def survey(draw: Draw, level: int) -> Exercise:
    """A list as in `todo` that names files to treat as in `count`; the others stay."""
    todo_name, ending = draw.name("cfg"), draw.extension()
    names = draw.names(level + 1, extension=ending)
    stays = draw.names(2, extension=ending)
    sizes = draw.numbers(len(names) + 2, low=1, high=6)
    counted = {name: text_of(draw.words(size)) for name, size in zip([*names, *stays], sizes, strict=True)}
    files = {todo_name: text_of(names)} | counted
    wanted, commands = [], []
    for name, size in zip(names, sizes, strict=False):
        target = f"{size}.{ending}"
        wanted += [checks.holds(target, text=files[name]), checks.is_moved(name, to=target)]
        commands.append(f"mv {name} {target}")
    begun = checks.exists(f"{sizes[0]}.{ending}")
    wanted += [checks.is_kept(name, text=files[name], once=begun) for name in stays]
    turns = (
        looks.turn(looks.cat(files, names=[todo_name])),
        looks.turn(looks.line_counts(files, names=names, pattern=" ".join(names))),
        silent(*commands),
    )
    instruction = draw.phrase(
        f"{ending} files are listed in {todo_name}. Rename each to its number of lines, keeping the ending.",
        f"read {todo_name}. Rename only the files it names, each to its number of lines, keeping the ending.",
    )
    return Exercise(instruction, files, tuple(wanted), turns)
