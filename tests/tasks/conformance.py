"""Task directories over the whole of Harbor's layout and schema, with what is to come of each.

A case is a task.toml and perhaps other files; the rest is a small task of two tests. `outcome` is what loading it and
asking for its box does: ("honoured", what is found), ("said", a pattern of the warning) or ("refused", a pattern of the
error).
"""

from dataclasses import dataclass, field
from pathlib import Path

TESTS = "import pathlib\n\n\ndef test_a(): assert pathlib.Path('/app/a').exists()\n\n\ndef test_b(): assert True\n"


@dataclass(frozen=True)
class Case:
    name: str
    toml: str
    outcome: tuple
    files: dict = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        directory = root / self.name
        given = {
            "instruction.md": "Make /app/a.\n",
            "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
            "tests/test.sh": "pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA\n",
            "tests/test_outputs.py": TESTS,
            "solution/solve.sh": "touch /app/a\n",
        }
        for name, text in (given | self.files | {"task.toml": self.toml}).items():
            if text is not None:
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return directory


def honoured(name, toml, files=None, **found):
    return Case(name, toml, ("honoured", found), files or {})


def said(name, toml, what):
    return Case(name, toml, ("said", what))


def refused(name, toml, why, files=None):
    return Case(name, toml, ("refused", why), files or {})


MCP = "[[environment.mcp_servers]]\nname = 'db'\n"
CASES = (
    honoured("empty", "", verifier_timeout_s=600.0, agent_timeout_s=None),
    honoured("schema_version", 'schema_version = "1.4"'),
    honoured("version", 'version = "1.0"'),
    honoured("source", 'source = "org/set"'),
    honoured(
        "task",
        '[task]\nname = "org/greet"\nversion = "1"\ndescription = "x"\nkeywords = ["a"]\n'
        '[[task.authors]]\nname = "A"\nemail = "a@example.org"\n',
    ),
    honoured("metadata", '[metadata]\ncategory = "files"\nanything = [1]\n', family="files"),
    honoured("agent_timeout", "[agent]\ntimeout_sec = 12.5", agent_timeout_s=12.5),
    honoured("agent_root", '[agent]\nuser = "root"'),
    honoured("agent_uid_0", "[agent]\nuser = 0"),
    refused("agent_user", '[agent]\nuser = "bob"', r"agent\.user 'bob'"),
    refused("agent_uid", "[agent]\nuser = 1000", r"agent\.user '1000'"),
    honoured("agent_no_network", '[agent]\nnetwork_mode = "no-network"'),
    said("agent_network", '[agent]\nnetwork_mode = "public"', r"agent\.network_mode asks for one"),
    refused(
        "agent_allowlist",
        '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]',
        r"agent\.network_mode",
    ),
    honoured("verifier_timeout", "[verifier]\ntimeout_sec = 30", verifier_timeout_s=30.0),
    honoured(
        "verifier_env",
        '[verifier]\nenv = { MODE = "x", KEY = "${KEY:-none}" }',
        verifier_env={"MODE": "x", "KEY": "none"},
    ),
    refused("verifier_secret", '[verifier]\nenv = { KEY = "${KEY}" }', r"verifier\.env\.KEY"),
    honoured("verifier_root", '[verifier]\nuser = "root"'),
    refused("verifier_user", '[verifier]\nuser = "bob"', r"verifier\.user 'bob'"),
    honoured("verifier_shared", '[verifier]\nenvironment_mode = "shared"'),
    refused("verifier_separate", '[verifier]\nenvironment_mode = "separate"', r"verifier\.environment_mode"),
    refused("verifier_environment", "[verifier.environment]\ncpus = 1", r"verifier\.environment"),
    refused(
        "verifier_collect",
        "[[verifier.collect]]\ncommand = 'true'\nservice = 'main'\ntimeout_sec = 5\nuser = 'root'",
        r"verifier\.collect",
    ),
    said("verifier_network", '[verifier]\nnetwork_mode = "public"', r"verifier\.network_mode asks for one"),
    refused(
        "verifier_allowlist",
        '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["1.2.3.4"]',
        r"verifier\.network_mode",
    ),
    said(
        "build_timeout",
        "[environment]\nbuild_timeout_sec = 60",
        r"no effect here: environment\.build_timeout_sec",
    ),
    honoured("image_beside", '[environment]\ndocker_image = "org/greet:1"'),
    refused(
        "image_alone",
        '[environment]\ndocker_image = "org/greet:1"',
        r"environment\.docker_image 'org/greet:1'",
        {"environment/Dockerfile": None},
    ),
    honoured("linux", '[environment]\nos = "Linux"'),
    refused("windows", '[environment]\nos = "windows"', r"environment\.os 'windows'"),
    honoured("cpus", "[environment]\ncpus = 1"),
    honoured("part_of_a_cpu", "[environment]\ncpus = 0.5"),
    refused("too_many_cpus", "[environment]\ncpus = 4096", r"environment\.cpus 4096: this machine has"),
    honoured("memory", "[environment]\nmemory_mb = 300\nstorage_mb = 30", memory_mb=300, storage_mb=30),
    said("more_memory", "[environment]\nmemory_mb = 40000", r"asks for memory_mb 40000 and gets"),
    honoured("older_sizes", '[environment]\nmemory = "256M"\nstorage = "30M"', memory_mb=256, storage_mb=30),
    honoured("no_gpus", "[environment]\ngpus = 0"),
    refused("gpus", "[environment]\ngpus = 1", r"environment\.gpus 1"),
    said("gpu_types", '[environment]\ngpu_types = ["H100"]', r"no effect here: environment\.gpu_types"),
    refused("tpu", '[environment]\ntpu = { type = "v6e", topology = "2x4" }', r"environment\.tpu"),
    honoured("env", '[environment]\nenv = { COLOR = "blue" }', env={"COLOR": "blue"}),
    refused("env_of_the_host", '[environment]\nenv = { TOKEN = "${TOKEN}" }', r"environment\.env\.TOKEN"),
    honoured("workdir", '[environment]\nworkdir = "/app/sub"', workdir="/app/sub"),
    refused(
        "healthcheck",
        "[environment.healthcheck]\ncommand = 'true'\ninterval_sec = 1\ntimeout_sec = 1\nstart_period_sec = 0\n"
        "start_interval_sec = 1\nretries = 1\n",
        r"environment\.healthcheck",
    ),
    refused("skills", '[environment]\nskills_dir = "/skills"', r"environment\.skills_dir"),
    refused("mcp_sse", MCP + "transport = 'sse'\nurl = 'http://db'\n", r"environment\.mcp_servers"),
    refused(
        "mcp_stdio", MCP + "transport = 'stdio'\ncommand = 'db'\nargs = ['x']\n", r"environment\.mcp_servers"
    ),
    refused(
        "mcp_http",
        MCP + "transport = 'http'\nurl = 'http://db'\nheaders = { A = 'b' }\n",
        r"environment\.mcp_servers",
    ),
    honoured("no_network", '[environment]\nnetwork_mode = "no-network"'),
    said("network", '[environment]\nnetwork_mode = "public"', r"environment\.network_mode asks for one"),
    said("internet", "[environment]\nallow_internet = true", r"environment\.allow_internet asks for one"),
    honoured("no_internet", "[environment]\nallow_internet = false"),
    refused(
        "allowlist",
        '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["*.a.org"]',
        r"environment\.network_mode",
    ),
    honoured("solution_env", '[solution]\nenv = { HINT = "yes" }', solution_env={"HINT": "yes"}),
    refused(
        "steps",
        "multi_step_reward_strategy = 'mean'\n[[steps]]\nname = 'one'\nmin_reward = 0.5\nartifacts = ['/app/a']\n"
        "[steps.agent]\ntimeout_sec = 5\n[steps.verifier]\ntimeout_sec = 5\n[steps.healthcheck]\ncommand = 'true'\n",
        "multi-step tasks",
        {"steps/one/instruction.md": "Make a.\n", "steps/one/tests/test.sh": "true\n"},
    ),
    said("strategy", 'multi_step_reward_strategy = "final"', "no effect here: multi_step_reward_strategy"),
    said(
        "artifacts",
        'artifacts = ["/app/a", { source = "/app/b", destination = "b", exclude = ["*.o"], service = "main" }]',
        "no effect here: artifacts",
    ),
    refused("compose", "", "docker-compose", {"environment/docker-compose.yaml": "services: {}\n"}),
    said("typo", "[environment]\nmemroy_mb = 300", r"keys nobody reads: environment\.memroy_mb"),
    honoured(
        "canary",
        "",
        {"instruction.md": "<!-- canary GUID x -->\n\nMake /app/a.\n"},
        instruction="Make /app/a.\n",
    ),
    honoured("no_dockerfile", "", {"environment/Dockerfile": None}),
    honoured("a_solution_less", "", {"solution/solve.sh": None}),
)
