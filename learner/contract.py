"""What the sides of a job agree on, once: paths, environment names, exit codes, ports, markers, messages and layouts.

Standard library only and Python >= 3.9: it travels into users' images beside the learner library.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional

# --- exit codes -------------------------------------------------------------------------------------------------------
EXIT_DONE = 0
EXIT_ARGO = 64  # Argo's own (argoexec)
EXIT_FINAL = 70  # an agent: the job failed elsewhere; a step: trying again can't help
EXIT_AGAIN = 75  # "again, please": halted, or waiting for something that will come (EX_TEMPFAIL)

# --- where things are inside a pod ------------------------------------------------------------------------------------
ROOT_ENV = "FFDL_ROOT"  # set only where an engine cannot give a pod paths of its own: they then lie under it


def path(absolute: str) -> str:
    """Where `absolute` (one of the paths below) really is in this pod."""
    root = os.environ.get(ROOT_ENV, "")
    return root + absolute if root else absolute


JOB_DIR = "/job"  # FfDL's shared folder of a job
MODEL_DIR = "/job/model-code"
LOG_DIR = "/job/logs"
CHECKPOINT_DIR = "/job/checkpoints"
DATA_ROOT = "/mnt/data"  # mounted data stores: /mnt/data/<bucket>
RESULTS_ROOT = "/mnt/results"  # /mnt/results/<bucket>/<training id>
CONFIG_DIR = "/ffdl/config"  # the job's ConfigMap: JOB_FILE, MANIFEST_FILE, CODE_FILE
TOKEN_DIR = "/ffdl/token"  # the job's Secret, in all of its pods: TOKEN_FILE, SECRET_ENV_FILE
STORE_SECRET_DIR = "/ffdl/store-credentials"  # store credentials: download, checkpoint and store-results only
HELPER_DIR = "/ffdl/helper"  # written by the helper, read-only for learners: ADDRESS_FILE, HALTED_FILE
JOURNAL_DIR = "/ffdl/journal"  # the helper's memory; steps leave the reason of a failure here; learners don't mount it
CONTROL_DIR = "/ffdl/control"  # the local engine's form of the cluster token (layout below)
SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # the cluster token: token, ca.crt, namespace
AGENT_DIR = "/ffdl/agent"  # the agent's own Python, copied in by an init container: AGENT_PYTHON
RUN_DIR = "/ffdl/run"  # this pod's own scratch: the agent's socket, the learner library
HOST_DATA_DIR = "/ffdl/volumes/data"  # a host_mount data store's training_data
HOST_RESULTS_DIR = "/ffdl/volumes/results"  # a host_mount data store's training_results
STORE_DIR = "/ffdl/results"  # the engine's own results store (claim RESULTS_CLAIM)

TASK_JOB_FILE = "/ffdl/task/job"  # a node of a pipeline that is a training job: the job and its code, in base64
TASK_CODE_FILE = "/ffdl/task/code"
TASK_ID_FILE = RUN_DIR + "/id"  # its output: the job's id

AGENT_PYTHON = AGENT_DIR + "/python"
JOB_FILE = "job.json"
MANIFEST_FILE = "manifest.yml"
CODE_FILE = "code.zip"
TOKEN_FILE = "token"
SECRET_ENV_FILE = "env.json"
STORE_CREDENTIALS_FILE = "credentials.json"  # an object with some of STORE_CREDENTIALS
STORE_CREDENTIALS = ("user_name", "password", "session_token")
ADDRESS_FILE = "address.json"  # {"host": ..., "port": ..., "epoch": ...}
HALTED_FILE = "halted"
FAILURES_DIR = "failures"  # in JOURNAL_DIR: <step>.json = {"reason": ..., "at": unix seconds}
AGENT_SOCKET_FILE = "agent.sock"  # in RUN_DIR
TRAINING_LOG = "training-log.txt"  # in LOG_DIR/learner-N
EARLIER_POD = "an earlier pod of this attempt is gone; the training log has what it wrote"  # said by the agent
METRICS_FILE = "evaluation-metrics.txt"  # in LOG_DIR/learner-N
SUBMITTED_CODE = "_submitted_code/model.zip"  # in the results: the code as submitted
RECORD_FILE = "status.json"  # in the results: the job's record
RESULTS_CLAIM = "ffdl-results"
DEFAULT_RESULTS_BUCKET = "dlaas-trained-models"  # FfDL's internal bucket, where a manifest names none
NO_RESULTS = "none"  # training_results.container that means "store no results"
RESERVED_IN_JOB_DIR = ("model-code", "logs", "checkpoints", ".ffdl")

# --- environment names ------------------------------------------------------------------------------------------------
JOB_ID_ENV = "FFDL_JOB_ID"
ROLE_ENV = "FFDL_ROLE"  # of an agent: LEARNER, if it is not set, or PARAMETER_SERVER
INDEX_ENV = "FFDL_INDEX"  # 0-based index of a learner or parameter server
ATTEMPT_ENV = "FFDL_ATTEMPT"  # 0-based attempt of a pod (Argo's {{retries}})
OUTCOME_ENV = "FFDL_OUTCOME"  # store-results: the outcome of what came before it
POD_IP_ENV = "FFDL_POD_IP"
PYTHON_ENV = "FFDL_PYTHON"  # the Python that `python` and `python3` of a command are to be, where no image says so
TASK_WORKFLOW_ENV = "FFDL_TASK_WORKFLOW"  # the pipeline that has the node
TASK_NODE_ENV = "FFDL_TASK_NODE"  # a node of a pipeline: its Workflow's uid and its name; the job's id follows
AGENT_SOCKET_ENV = "FFDL_AGENT_SOCKET"  # the learner library finds its agent here
THREAD_ENVS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

# --- who is in a job --------------------------------------------------------------------------------------------------
LEARNER, PARAMETER_SERVER = "learner", "parameter-server"  # roles, and the names of their templates
MEMBERS = (PARAMETER_SERVER, LEARNER)
PEER, MPI = "peer", "mpi"  # kinds of `distribution`, beside PARAMETER_SERVER and "none"
PER_GPU = "per-gpu"  # one of `processes`; the other is "one"
MODES = ("sync", "async", "easgd", "average")  # of parameter servers
OWN_SERVERS = TENSORFLOW, MXNET = ("tensorflow", "mxnet")  # modes in which servers run the command: the framework's own
LOCKSTEP = ("sync", "average")  # modes of parameter servers in which no learner goes on before all have sent theirs

# --- annotations and labels of the Workflow ---------------------------------------------------------------------------
LABEL_JOB = "ffdl.org/job"  # on every pod
LABEL_ROLE = "ffdl.org/role"  # learner, checkpoint, download, store-results
LABEL_REPORT = "ffdl.org/report"  # "true" on the ConfigMap <job>-status, which holds the helper's report
LABEL_RECORD = "ffdl.org/record"  # "true" on the ConfigMap <job>-record, which outlives the Workflow
ANNOTATION_NAME = "ffdl.org/name"  # the manifest's name, JSON-quoted
ANNOTATION_SUMMARY = "ffdl.org/summary"  # JSON: what `list` shows: framework, version, learners, gpus
ANNOTATION_REASON = "ffdl.org/reason"  # why the job failed, one line, written by the helper or the exit step
ANNOTATION_START_TIMEOUT = "ffdl.org/start-timeout"  # seconds; JobSpec.start_timeout for those outside the job
ANNOTATION_STOP = "ffdl.org/stop"  # asks the helper to end the job by protocol
ANNOTATION_RELEASED = "ffdl.org/released"  # the submission is whole: a suspended Workflow with it is halted, not unborn

# --- times, in seconds ------------------------------------------------------------------------------------------------
HEARTBEAT_INTERVAL = 2.0
HEARTBEAT_TIMEOUT = 20.0
RECONNECT_WINDOW = 10.0  # a member that comes back within it is the same
HELPER_ABSENCE = 120.0  # learners train on without a helper for this long
HELPER_WAIT_FIRST, HELPER_WAIT_MOST = 15.0, 600.0
SHIP_WAIT_ON_HALT = 60.0
REPORT_INTERVAL = 2.0
KILL_GRACE = 30.0  # beyond halt_grace, for the pod
LEAVE_GRACE = 30.0  # that a command gets to leave a job, or a world, that is over
MOVES_INTERVAL = 5.0  # between two signs of a script that follows worlds
LOOK_EVERY = 0.5  # between two looks of learners that wait for each other whether to go on waiting

# --- messages: JSON objects, one a line -------------------------------------------------------------------------------
MAX_FRAME = 1 << 16
JOIN, WELCOME, REFUSED, FINISHED, WORLD = "join", "welcome", "refused", "finished", "world"
BREAK, RESTARTED = "break", "restarted"  # a world is over; a learner's command starts again
HEARTBEAT, CHECKPOINTED, DONE, RELEASED = "heartbeat", "checkpointed", "done", "released"
FAILED, VERDICT, HALT, COMPLETE, END = "failed", "verdict", "halt", "complete", "end"
STEP, HELLO, HALTED = "step", "hello", "halted"  # between learner library and agent
LISTENER, PLACE, MOVES = "listener", "place", "moves"
NEWS = "news"  # of a world that goes on: the newest step that all have saved, who is done
CHECKPOINTS_TOLD = 100  # of the newest checkpoints that a member has, it tells of so many

# --- the local engine's control folder (mounted at CONTROL_DIR into pods that hold the cluster token) -----------------
CONTROL_WORKFLOW = "workflow.json"  # apiVersion, kind, metadata, spec; replaced atomically, under the job's lock
CONTROL_STATUS = "status.json"  # the Workflow's status, as Argo writes it; only the runner writes it
CONTROL_REPORT = "report.json"  # the helper's one line of status (the ConfigMap <job>-status of a cluster)
CONTROL_EPOCHS = "epochs"  # a folder: epoch N is taken by creating the file N exclusively
CONTROL_REQUESTS = "requests"  # a folder: *.json asked of the runner; each is removed once done
REQUEST_ANNOTATE = "annotate"  # {"kind": "annotate", "annotations": {name: value}}
REQUEST_STOP = "stop"  # {"kind": "stop", "annotations": …}: spec.shutdown, for a job whose pods can't start
REQUEST_RESUME = "resume"  # {"kind": "resume", "selector", "outputs", "phase", "message"}: of suspend templates' nodes
REQUEST_DELETE_POD = "delete-pod"  # {"kind": "delete-pod", "pod": name, "force": bool}


@dataclass(frozen=True)
class Store:
    """Where training data comes from or results go to.

    `kind` is `s3` (bucket at an endpoint), `host` (a folder of the node, mounted at HOST_DATA_DIR or HOST_RESULTS_DIR)
    or `claim` (the engine's own, at STORE_DIR). `layout` says which of FfDL's path schemes the learner sees: `mount`
    (/mnt/data/<bucket>) or `copy` (/job/<bucket>).
    """

    kind: str
    bucket: str
    layout: str = "mount"
    endpoint: str = ""
    region: str = ""
    id: str = ""  # as in the manifest, for messages


@dataclass(frozen=True)
class JobSpec:
    """What the steps of a job need to know: JOB_FILE of its ConfigMap. Sizes in bytes, times in seconds."""

    name: str
    command: str  # reaches the shell exactly like this
    framework: str
    framework_version: str
    learners: int
    cpus: float
    gpus: float
    memory: int
    results: Optional[Store]  # None: no results are kept
    data: Optional[Store] = None
    distribution: str = "none"  # none, peer, parameter-server, mpi
    processes: str = ""  # of the command in each learner: one, per-gpu; "": as the command itself starts them
    servers: int = 0  # parameter servers
    server_cpus: float = 1.0
    mode: str = ""  # of these: sync, async, easgd, average, tensorflow, mxnet
    completion: str = "all"  # all, first, master
    retry_attempts: int = 0
    retry_on: List[str] = field(default_factory=lambda: ["crash", "out-of-memory"])
    checkpoint_interval: Optional[float] = 60.0
    checkpoint_steps: Optional[int] = None
    checkpoint_keep: int = 3
    halt_grace: float = 120.0
    start_timeout: float = 3600.0
    max_runtime: Optional[float] = None
    env: Dict[str, str] = field(default_factory=dict)
    metrics: Dict[str, Any] = field(default_factory=dict)  # evaluation_metrics, keys as in the manifest
    continues: str = ""  # the job whose last checkpoint it begins with
    format: int = 1

    def to_json(self) -> str:
        values = asdict(self)
        if not self.continues:  # images of before there was this can read it all the same
            del values["continues"]
        return json.dumps(values, sort_keys=True, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "JobSpec":
        """Raises ValueError for what this version does not know."""
        values = json.loads(text)
        if values.get("format") != 1:
            raise ValueError(f"job.json has format {values.get('format')}; this version reads format 1")
        for key in ("data", "results"):
            if values.get(key) is not None:
                values[key] = Store(**values[key])
        unknown = sorted(values.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            what = ", ".join(map(repr, unknown))
            raise ValueError(f"job.json has {what}, of a newer ffdl: images are to be as new as who submits with them")
        return cls(**values)

    @property
    def lockstep(self) -> bool:
        """No learner can go on without all others."""
        return self.distribution in (PEER, MPI) or self.mode in LOCKSTEP or self.own_servers

    @property
    def own_servers(self) -> bool:
        """Servers run the command: they are the framework's own."""
        return self.mode in OWN_SERVERS

    def checkpoint_folder(self, role: str, index: int) -> str:
        """Where in CHECKPOINT_DIR the library saves what member `index` in its role has."""
        return "" if self.learners == 1 and role == LEARNER else member_name(role, index)

    @property
    def slots(self) -> int:
        """Processes that a learner has room for, one for each of its GPUs."""
        return 1 if self.processes == "one" else max(1, int(self.gpus))

    @property
    def started(self) -> int:
        """Processes of the command that its agent starts."""
        return self.slots if self.processes == PER_GPU and self.distribution != MPI else 1

    # FfDL's paths (CONTRACT: 4.1), as a learner sees them
    def data_dir(self) -> str:
        if self.data is None:
            return path(DATA_ROOT)
        return path(f"{JOB_DIR if self.data.layout == 'copy' else DATA_ROOT}/{self.data.bucket}")

    def result_bucket_dir(self) -> str:
        if self.results is not None and self.results.layout == "copy":
            return path(f"{JOB_DIR}/{self.results.bucket}")
        return path(f"{RESULTS_ROOT}/{self.results.bucket if self.results else DEFAULT_RESULTS_BUCKET}")

    def result_dir(self, job_id: str) -> str:
        folder = self.result_bucket_dir()
        return folder if self.results is not None and self.results.layout == "copy" else f"{folder}/{job_id}"


def learner_name(index: int) -> str:
    """Folder and display name of learner `index` (0-based): people number learners from 1, as LEARNER_ID does."""
    return member_name(LEARNER, index)


def member_name(role: str, index: int) -> str:
    """As `learner_name`, also of a parameter server."""
    return f"{role}-{index + 1}"


def is_member_name(name: str) -> bool:
    """Whether `name` is that of a learner or a parameter server."""
    role, _, number = name.rpartition("-")
    return role in MEMBERS and number.isdecimal()


def pod_name(workflow: str, node: Mapping[str, Any]) -> str:
    """As Argo names the pod of a node: Workflow, template, and the hash in which the node's id ends."""
    return f"{workflow}-{node.get('templateName', '')}-{str(node.get('id', '')).rpartition('-')[2]}"


def atomic_write(target: str, data: bytes, mode: int = 0o644) -> None:
    """Replaces `target` so that a reader, or a crash, sees the old bytes or the new ones, never a part."""
    temporary = f"{target}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
