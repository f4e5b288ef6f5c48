"""Direct families: the instruction says everything. Higher levels ask for more of the same."""

from t1core.tasks.practice import checks
from t1core.tasks.practice.draw import Draw, listed, text_of
from t1core.tasks.practice.exercise import Exercise, silent


def create(draw: Draw, level: int) -> Exercise:
    """Empty files, at higher levels inside one or two new directories."""
    folders = draw.words(level - 1)
    groups = [(folder, draw.names(draw.number(2 + level, 3 + level))) for folder in folders] or [
        ("", draw.names(draw.number(3, 4)))
    ]
    commands, wanted, parts = [], [], []
    if folders:
        commands.append("mkdir -p " + " ".join(folders))
    for folder, names in groups:
        paths = [f"{folder}/{name}" if folder else name for name in names]
        commands.append("touch " + " ".join(paths))
        if folder:
            wanted.append(checks.is_folder(folder))
            parts.append(f"the directory {folder} with empty files {listed(names)}")
        else:
            parts.append(f"the empty files {listed(names)}")
        wanted += [checks.is_empty(path) for path in paths]
    what = ", and ".join(parts)
    return Exercise(draw.phrase(f"make {what}.", f"create {what}."), {}, tuple(wanted), (silent(*commands),))


def write(draw: Draw, level: int) -> Exercise:
    """One word into each of some files."""
    pairs = [(draw.name(), draw.word()) for _ in range((2, 3, 5)[level - 1])]
    instruction = draw.phrase(
        "write " + listed([f"{word} to {name}" for name, word in pairs]) + ".",
        "put " + listed([f"{word} in {name}" for name, word in pairs]) + ".",
        "make " + listed([f"{name} with the word {word}" for name, word in pairs]) + ".",
    )
    wanted = [
        check for name, word in pairs for check in (checks.is_file(name), checks.holds(name, text=word))
    ]
    return Exercise(
        instruction, {}, tuple(wanted), (silent(*[f"echo {word} > {name}" for name, word in pairs]),)
    )


def nest(draw: Draw, level: int) -> Exercise:
    """Nested directories with files in the deepest."""
    depth, num_paths, num_files = ((2, 1, 1), (3, 1, 2), (3, 2, 2))[level - 1]
    paths = [draw.words(depth) for _ in range(num_paths)]
    wanted = [checks.is_folder("/".join(path[: i + 1])) for path in paths for i in range(depth)]
    tops = ["/".join(path) for path in paths]
    pairs = [(f"{top}/{draw.name()}", draw.word()) for top in tops for _ in range(num_files)]
    for name, word in pairs:
        wanted += [checks.is_file(name), checks.holds(name, text=word)]
    written = listed([f"{word} to {name}" for name, word in pairs])
    noun = "directory" if num_paths == 1 else "directories"
    instruction = draw.phrase(
        f"make the {noun} {listed(tops)}. Write {written}.",
        f"in the new {noun} {listed(tops)}, write {written}.",
    )
    commands = ["mkdir -p " + " ".join(tops), *[f"echo {word} > {name}" for name, word in pairs]]
    return Exercise(instruction, {}, tuple(wanted), (silent(*commands),))


def append(draw: Draw, level: int) -> Exercise:
    """Words added to the end of files that already hold some."""
    num_files, num_words = ((1, 2), (2, 2), (3, 2))[level - 1]
    files = {draw.name(): text_of(draw.words(draw.number(1, 2))) for _ in range(num_files)}
    wanted, commands, parts = [], [], []
    for name, text in files.items():
        added = draw.words(num_words)
        wanted.append(checks.begins(name, text=text))
        first = len(text.splitlines()) + 1
        wanted += [checks.has_line(name, number=first + i, text=word) for i, word in enumerate(added)]
        commands += [f"echo {word} >> {name}" for word in added]
        parts.append(" then ".join(added) + f" to {name}")
    instruction = draw.phrase(f"append {listed(parts)}.", f"add the lines {listed(parts)}.")
    return Exercise(instruction, files, tuple(wanted), (silent(*commands),))


def copy(draw: Draw, level: int) -> Exercise:
    """Copies under new names (level 1) or into new directories."""
    if level == 1:
        pairs = [(draw.name(), draw.name()) for _ in range(2)]
        files = {source: text_of(draw.words(2)) for source, _ in pairs}
        targets = [(target, files[source]) for source, target in pairs]
        commands = [f"cp {source} {target}" for source, target in pairs]
        instruction = draw.phrase(
            "copy " + listed([f"{source} to {target}" for source, target in pairs]) + "."
        )
        wanted = []
    else:
        groups = [(draw.word(), draw.names(level + 1)) for _ in range(level - 1)]
        files = {name: text_of(draw.words(2)) for _, names in groups for name in names}
        targets = [(f"{folder}/{name}", files[name]) for folder, names in groups for name in names]
        commands = ["mkdir -p " + " ".join(folder for folder, _ in groups)]
        commands += [f"cp {' '.join(names)} {folder}" for folder, names in groups]
        what = ", and ".join(f"{listed(names)} into the new directory {folder}" for folder, names in groups)
        instruction = draw.phrase(f"copy {what}.", f"put copies of {what}.")
        wanted = [checks.is_folder(folder) for folder, _ in groups]
    for target, text in targets:
        wanted += [checks.is_file(target), checks.holds(target, text=text)]
    return Exercise(instruction, files, tuple(wanted), (silent(*commands),))


def move(draw: Draw, level: int) -> Exercise:
    """Files renamed."""
    pairs = [(draw.name(), draw.name()) for _ in range(2 * level - 1)]
    files = {source: text_of(draw.words(2)) for source, _ in pairs}
    wanted = []
    for source, target in pairs:
        wanted += [
            checks.is_file(target),
            checks.holds(target, text=files[source]),
            checks.is_moved(source, to=target),
        ]
    what = listed([f"{source} to {target}" for source, target in pairs])
    instruction = draw.phrase(f"rename {what}.", f"move {what}.")
    return Exercise(instruction, files, tuple(wanted), (silent(*[f"mv {a} {b}" for a, b in pairs]),))


def remove(draw: Draw, level: int) -> Exercise:
    """Some files, at level 3 also directories, deleted and the rest left alone."""
    names = draw.names((3, 5, 6)[level - 1])
    folders = draw.words(3) if level == 3 else []
    kept = {name: text_of(draw.words(1)) for name in draw.names(2)}
    files = {name: text_of(draw.words(1)) for name in names} | kept
    files |= {f"{folder}/{draw.name()}": text_of(draw.words(1)) for folder in folders}
    begun = "not " + checks.exists(names[0])
    wanted = [checks.is_gone(path) for path in [*names, *folders]]
    wanted += [checks.is_kept(name, text=text, once=begun) for name, text in kept.items()]
    what = listed(names) + (f", and the directories {listed(folders)}" if folders else "")
    instruction = draw.phrase(f"remove {what}. Keep the rest.", f"delete {what}, nothing else.")
    commands = ["rm " + " ".join(names)] + (["rm -r " + " ".join(folders)] if folders else [])
    return Exercise(instruction, files, tuple(wanted), (silent(*commands),))


def mode(draw: Draw, level: int) -> Exercise:
    """Permissions: scripts made executable, other files read-only."""
    scripts = draw.names((3, 3, 5)[level - 1], extension="sh")
    fixed = draw.names((0, 3, 6)[level - 1])
    files = {name: text_of([f"echo {draw.word()}"]) for name in scripts}
    files |= {name: text_of(draw.words(1)) for name in fixed}
    wanted = [checks.is_executable(name) for name in scripts] + [checks.is_read_only(name) for name in fixed]
    what = f"{listed(scripts)} executable" + (f", and {listed(fixed)} read-only" if fixed else "")
    instruction = draw.phrase(f"make {what}.", f"set the modes: {what}.")
    commands = ["chmod a+x " + " ".join(scripts)] + (["chmod a-w " + " ".join(fixed)] if fixed else [])
    return Exercise(instruction, files, tuple(wanted), (silent(*commands),))


def report(draw: Draw, level: int) -> Exercise:
    """Lines selected, cut, sorted or counted from one file into others."""
    source, key = draw.name(), draw.word()
    num_lines = draw.number(5, 7)
    held = set(draw.numbers(2, low=0, high=num_lines - 1))
    lines = [f"{draw.word()} {key if i in held else draw.word()}" for i in range(num_lines)]
    top, bottom = draw.number(2, 4), draw.number(2, 4)
    kinds = {
        "grep": (f"grep {key} {source}", f"its lines with {key}", [line for line in lines if key in line]),
        "head": (f"head -n {top} {source}", f"its first {top} lines", lines[:top]),
        "tail": (f"tail -n {bottom} {source}", f"its last {bottom} lines", lines[-bottom:]),
        "sort": (f"sort {source}", "its lines sorted", sorted(lines)),
        "count": (f"wc -l < {source}", "its line count", [str(num_lines)]),
    }
    wanted, commands, parts = [], [], []
    for kind in draw.shuffled(list(kinds))[: 2 * level - 1]:
        command, what, kept = kinds[kind]
        target = draw.name()
        wanted += [checks.is_file(target), checks.has_num_lines(target, number=len(kept))]
        wanted.append(checks.holds(target, text=text_of(kept)))
        commands.append(f"{command} > {target}")
        parts.append(f"{what} to {target}")
    instruction = draw.phrase(
        f"from {source} save {listed(parts)}.", f"read {source} and write {listed(parts)}."
    )
    return Exercise(instruction, {source: text_of(lines)}, tuple(wanted), (silent(*commands),))


def gather(draw: Draw, level: int) -> Exercise:
    """All files of an ending moved into a directory; files of another ending stay."""
    endings = draw.extensions(level + 1)
    groups = [
        (draw.word(), ending, draw.names(5 if level == 3 else 3, extension=ending))
        for ending in endings[:level]
    ]
    files = {name: text_of(draw.words(1)) for _, _, names in groups for name in names}
    stays = draw.name(endings[level])
    wanted = [checks.is_folder(folder) for folder, _, _ in groups]
    for folder, _, names in groups:
        wanted += [checks.is_moved(name, to=f"{folder}/{name}") for name in names]
    files[stays] = text_of(draw.words(1))
    wanted.append(checks.is_kept(stays, text=files[stays], once=checks.exists(groups[0][0])))
    what = listed([f"all {ending} files into the new directory {folder}" for folder, ending, _ in groups])
    instruction = draw.phrase(f"move {what}.", f"gather {what}.")
    commands = ["mkdir -p " + " ".join(folder for folder, _, _ in groups)]
    commands += [f"mv *.{ending} {folder}" for folder, ending, _ in groups]
    return Exercise(instruction, files, tuple(wanted), (silent(*commands),))
