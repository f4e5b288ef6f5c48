"""`t1 init`: a new project of one's own, with settings, a campaign file and notebooks that run at once."""

import re
from pathlib import Path

from t1core.config import load_config, preset_path

_NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_NAME = re.compile(r'^name = "[^"]*"$', re.M)
_README = """# {name}

    t1 config campaign.toml --diff {preset}   # what differs from the preset it began as
    t1 notebook campaign.yaml --dry-run       # check settings and machine, start nothing
    t1 notebook campaign.yaml                 # run the campaign and show what happened
    t1 tail runs/{name}/<run>                 # watch it from another terminal
    t1 compare runs/{name}                    # once there are several runs

Run these in this folder. `campaign.toml` holds the settings: `t1 config --explain train.actor.lr` says what one means.
Runs go into `runs/`. What a campaign is prepared with (task pool, starting policy, critic) is kept in `.t1core/` here;
set T1CORE_HOME to a folder of your own to share it between projects.
"""


def init_project(directory: Path, *, preset: str) -> list[Path]:
    """Write the files of a new project, settings copied from a preset, and return them. ValueError where the folder
    holds something, its name can't be a campaign's, or the notebooks do not lie beside the package.
    """
    name = directory.resolve().name
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ValueError(f"{directory} is not an empty folder: name a new one")
    if not (_NOTEBOOKS / "campaign.ipynb").is_file():
        raise ValueError(
            f"no notebooks in {_NOTEBOOKS}: a project starts from those of a checkout; install t1core from one "
            "with `pip install --editable`"
        )
    load_config(preset, name=name)  # also refuses a name that no campaign can have
    text = preset_path(preset).read_text()
    settings = _NAME.sub(f'name = "{name}"', text, count=1)
    if not _NAME.search(text):
        settings = f'name = "{name}"\n{text}'
    files = {
        "campaign.toml": settings,
        "campaign.yaml": (
            "# The notebook of this campaign and its parameters; paths are from this folder.\n"
            "notebook: campaign.ipynb\n"
            "parameters:\n"
            "  preset: campaign.toml\n"
            f'  name: "{name}"\n'
            "  seed: 0\n"
            "  overrides: []\n"
        ),
        "campaign.ipynb": (_NOTEBOOKS / "campaign.ipynb").read_text(),
        "compare.ipynb": (_NOTEBOOKS / "compare.ipynb").read_text(),
        "README.md": _README.format(name=name, preset=preset),
        ".gitignore": "runs/\n.t1core/\n",
    }
    directory.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (directory / file).write_text(content)
    return [directory / file for file in files]
