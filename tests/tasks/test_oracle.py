"""One exercise of each kind written out by hand, so that a change of the generator's meaning is seen."""

from t1core.tasks.practice import looks

FILES = {"owl.txt": "a oak\nb\n", "fox.txt": "oak\n", "fox.log": "oak\n"}


def test_looks_print_what_a_shell_would():
    assert looks.cat(FILES, names=["fox.log", "owl.txt"]) == ("cat fox.log owl.txt", "oak\na oak\nb\n")
    assert looks.holders(FILES, word="oak", extension="txt") == ("grep -l oak *.txt", "fox.txt\nowl.txt\n")
    assert looks.contents(FILES, extension="txt") == (
        "grep . *.txt",
        "fox.txt:oak\nowl.txt:a oak\nowl.txt:b\n",
    )
    counts = looks.line_counts(FILES, names=["owl.txt", "fox.log"], pattern="owl.txt fox.log")
    assert counts == ("grep -c . owl.txt fox.log", "owl.txt:2\nfox.log:1\n")


def test_a_turn_keeps_each_commands_output_apart_and_joins_them():
    turn = looks.turn(("cat fox.log", "oak\n"), ("touch a", ""), ("cat fox.log", "oak\n"))
    assert turn.outputs == ("oak\n", "", "oak\n")
    assert turn.output == "oak\noak\n"
