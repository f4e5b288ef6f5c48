"""Task directories over the whole of Harbor's layout and schema, with what is to come of each.

A case is a task.toml and perhaps other files; the rest is a small task of two tests. `outcome` is what loading it and
asking for its box does: ("honoured", what is found), ("said", a pattern of the warning) or ("refused", a pattern of the
error).
"""

from dataclasses import dataclass, field
from pathlib import Path

from t1core.records.task import Artifact, Collect, HealthCheck, McpServer

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


LIKE_AN_ENVIRONMENT = """
docker_image = "org/tests:1"
os = "linux"
cpus = 1
memory_mb = 128
storage_mb = 32
gpus = 0
gpu_types = []
workdir = "/app/w"
skills_dir = ""
mcp_servers = []
network_mode = "no-network"
env = { A = "1" }
"""
STEPS = """
multi_step_reward_strategy = 'mean'
artifacts = ['/app/a']
[verifier]
env = { WHO = "all", WHAT = "x" }
[agent]
timeout_sec = 9
[[steps]]
name = 'one'
min_reward = 0.5
artifacts = ['/app/b']
[steps.agent]
timeout_sec = 5
network_mode = "no-network"
[steps.verifier]
timeout_sec = 7
environment_mode = "separate"
env = { WHO = "one" }
network_mode = "no-network"
[steps.healthcheck]
command = 'true'
interval_sec = 1
timeout_sec = 2
start_period_sec = 0
start_interval_sec = 3
retries = 4
[[steps]]
name = 'two'
[[steps.verifier.collect]]
command = 'date > /app/now'
"""
STEP_FILES = {
    "instruction.md": None,
    "steps/one/instruction.md": "Make a.\n",
    "steps/one/workdir/setup.sh": "true\n",
    "steps/two/instruction.md": "Make b.\n",
    "steps/two/tests/test_outputs.py": "def test_c(): assert True\n",
}
STEPS_FOUND = {
    "instruction": "Make a.\n",
    "test_names": (
        "one/test_outputs.py::test_a",
        "one/test_outputs.py::test_b",
        "two/test_outputs.py::test_c",
    ),
    "agent_timeout_s": 14.0,
    "takes_final_reward": False,
    "steps__0__step_name": "one",
    "steps__0__instruction": "Make a.\n",
    "steps__0__agent_timeout_s": 5.0,
    "steps__0__verifier_timeout_s": 7.0,
    "steps__0__verifier_env": {"WHO": "one", "WHAT": "x"},
    "steps__0__min_reward": 0.5,
    "steps__0__healthcheck": HealthCheck("true", 1.0, 2.0, 0.0, 3.0, 4),
    "steps__0__workdir_files__name": "workdir",
    "steps__0__separate_tests__artifacts": (Artifact("/app/a"), Artifact("/app/b")),
    "steps__1__instruction": "Make b.\n",
    "steps__1__test_names": ("test_outputs.py::test_c",),
    "steps__1__agent_timeout_s": 9.0,
    "steps__1__verifier_env": {"WHO": "all", "WHAT": "x"},
    "steps__1__min_reward": None,
    "steps__1__separate_tests": None,
    "steps__1__collect": (Collect("date > /app/now", 60.0),),
}
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
    honoured(
        "verifier_separate",
        '[verifier]\nenvironment_mode = "separate"\n[environment]\nenv = { A = "1" }\n',
        separate_tests__environment__env={"A": "1"},
        separate_tests__directory__name="environment",
        separate_tests__artifacts=(),
    ),
    honoured(
        "verifier_environment",
        'artifacts = ["/app/a", { source = "/app/b", destination = "b", exclude = ["*.o"], service = "main" }]\n'
        + "[verifier.environment]\n"
        + LIKE_AN_ENVIRONMENT,
        {"tests/Dockerfile": "FROM ubuntu\nCOPY . /tests/\n"},
        separate_tests__environment__memory_mb=128,
        separate_tests__environment__workdir="/app/w",
        separate_tests__directory__name="tests",
        separate_tests__artifacts=(Artifact("/app/a"), Artifact("/app/b", ("*.o",))),
    ),
    refused(
        "verifier_allowlist_of_its_own",
        '[verifier.environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]',
        r"verifier\.environment\.network_mode",
    ),
    honoured(
        "verifier_collect",
        "[[verifier.collect]]\ncommand = 'true'\nservice = 'main'\ntimeout_sec = 5\nuser = 'root'",
        collect=(Collect("true", 5.0),),
    ),
    refused(
        "verifier_collect_elsewhere",
        "[[verifier.collect]]\ncommand = 'true'\nservice = 'db'",
        r"verifier\.collect\[0\]\.service 'db': a box is one container",
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
    honoured(
        "healthcheck",
        "[environment.healthcheck]\ncommand = 'true'\ninterval_sec = 1\ntimeout_sec = 2\nstart_period_sec = 0\n"
        "start_interval_sec = 3\nretries = 4\n",
        environment__healthcheck=HealthCheck("true", 1.0, 2.0, 0.0, 3.0, 4),
    ),
    honoured(
        "healthcheck_as_usual",
        "[environment.healthcheck]\ncommand = 'true'\n",
        environment__healthcheck=HealthCheck("true", 5.0, 30.0, 0.0, 5.0, 3),
    ),
    honoured("skills", '[environment]\nskills_dir = "/skills"', environment__skills_dir="/skills"),
    refused("mcp_sse", MCP + "transport = 'sse'\nurl = 'http://db'\n", r"environment\.mcp_servers\[0\]\.url"),
    honoured(
        "mcp_in_the_box",
        MCP + "transport = 'sse'\nurl = 'http://localhost:80/sse'\n",
        environment__mcp_servers=(McpServer("db", "sse", "http://localhost:80/sse"),),
    ),
    honoured(
        "mcp_stdio",
        MCP + "transport = 'stdio'\ncommand = 'db'\nargs = ['x']\n",
        environment__mcp_servers=(McpServer("db", "stdio", "db x"),),
    ),
    refused(
        "mcp_http",
        MCP + "transport = 'http'\nurl = 'http://db'\nheaders = { A = 'b' }\n",
        r"environment\.mcp_servers\[0\]\.headers",
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
    honoured("steps", STEPS, STEP_FILES, **STEPS_FOUND),
    honoured(
        "steps_of_which_the_last_counts",
        "multi_step_reward_strategy = 'final'\n[[steps]]\nname = 'one'\nmin_reward = { reward = 0.5 }\n",
        {name: text for name, text in STEP_FILES.items() if "/two/" not in name},
        takes_final_reward=True,
        steps__0__min_reward=0.5,
        steps__0__verifier_timeout_s=600.0,
        test_names=("one/test_outputs.py::test_a", "one/test_outputs.py::test_b"),
    ),
    refused("steps_without_files", "[[steps]]\nname = 'one'\n", r"steps/one/instruction\.md is missing"),
    refused(
        "steps_with_a_user",
        "[[steps]]\nname = 'one'\nagent = { user = 'bob' }\n",
        r"steps\[0\]\.agent\.user 'bob'",
        STEP_FILES,
    ),
    refused(
        "steps_with_a_network",
        "[[steps]]\nname = 'one'\n[steps.agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.org']\n",
        r"steps\[0\]\.agent\.network_mode",
        STEP_FILES,
    ),
    refused(
        "steps_with_several_rewards",
        "[[steps]]\nname = 'one'\nmin_reward = { speed = 1.0 }\n",
        "a step has one reward",
        STEP_FILES,
    ),
    refused(
        "a_conversation_to_go_on_from", "", r"trajectory\.json: a conversation", {"trajectory.json": "{}"}
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
