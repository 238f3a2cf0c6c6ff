"""The data store of a manifest: where training data comes from and results go to."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from ..learner import contract
from .errors import shown
from .keys import CREDENTIAL, LINE, WRONG, Key, ListOf, Part, PartOf, Value, Written, choice, printing
from .yaml_lines import Node, Place, Report, Scalar

MOUNT_COS, S3, MOUNT_VOLUME = "mount_cos", "s3_datastore", "mount_volume"
HOST_MOUNT = "host_mount"
NO_BUCKET = "Data store bucket is not set; write container: BUCKET"
ONLY_ONE = (
    "Please only specify one data_store in the manifest. "
    "This constraint will go away with the once the new manifest is in place."
)
_S3_KEYS = ("auth_url", "region", "user_name", "password", "secret", "type")
_HOST_KEYS = ("type", "name", "path")
_OTHER_STORE = f"write {S3} with the auth_url of the store's S3 interface"
_LATER = dict.fromkeys(("swift_datastore", "softlayer_objectstore", "bluemix_objectstore"), _OTHER_STORE) | {
    "inmem_datastore": f"write {MOUNT_VOLUME} with a folder of this machine"
}


def _bucket(node: Scalar) -> str:
    name = printing(node)
    if "/" in name or name in (".", ".."):
        raise ValueError(f"is {shown(name)}, which is a path; write the name of one bucket or folder, without '/'")
    if len(name.encode()) > 255:
        raise ValueError(f"is {len(name.encode())} bytes long, and no folder can be called so; write at most 255 bytes")
    return name


def _no_reference(node: Scalar) -> str:
    value = printing(node)
    if "${" in value:
        raise ValueError(
            f"is {shown(value)}, and ${{NAME}} is filled in for credentials and env only; write the value itself"
        )
    return value


def _host_path(node: Scalar) -> str:
    """Argo rewrites {{…}} and Kubernetes $(…): a path with them would become another one."""
    value = _no_reference(node)
    if not value:
        raise ValueError("is empty; write the path of a folder on the machine")
    for rewritten in ("{{", "$("):
        if rewritten in value:
            raise ValueError(
                f"is {shown(value)}, and {rewritten} would be rewritten on its way; write a path without it"
            )
    return value


BUCKET = Value("the name of a bucket", _bucket)
ADDRESS = Value("text", _no_reference)
PATH = Value("a path", _host_path)


class TrainingData(Part):
    title: ClassVar[str] = "in data_stores.0.training_data"

    container: Annotated[
        str, Key(BUCKET, "Bucket of the training data; with `host_mount`, a folder in `path`.", missing=NO_BUCKET)
    ]


class TrainingResults(Part):
    title: ClassVar[str] = "in data_stores.0.training_results"

    container: Annotated[
        str,
        Key(
            BUCKET,
            "Bucket of the results; with `host_mount`, a folder in `path`. `none` keeps no results.",
            missing=NO_BUCKET,
        ),
    ]


class Connection(Part):
    title: ClassVar[str] = "in data_stores.0.connection"
    refused: ClassVar[dict[str, str]] = dict.fromkeys(
        ("domain_name", "project_id"), "is not used in this version; remove it, and write type: s3_datastore"
    )

    auth_url: Annotated[str | None, Key(ADDRESS, "`mount_cos`, `s3_datastore`: address of the object store.")] = None
    region: Annotated[str | None, Key(ADDRESS, "`mount_cos`, `s3_datastore`: region, where the store has several.")] = (
        None
    )
    user_name: Annotated[
        str | None,
        Key(
            CREDENTIAL,
            "Access key id. Without it and `secret`, those of your environment (`AWS_ACCESS_KEY_ID`, "
            "`AWS_SECRET_ACCESS_KEY`) go with the job; without them the machine's role gives credentials, "
            "on a cluster only if its administrator lets pods have it.",
        ),
    ] = None
    password: Annotated[str | None, Key(CREDENTIAL, "Secret access key.")] = None
    secret: Annotated[
        str | None, Key(LINE, "Name of a Secret with the keys `user_name` and `password`, instead of writing them.")
    ] = None
    type: Annotated[
        str | None, Key(choice(HOST_MOUNT, MOUNT_COS, S3), "`host_mount` for `mount_volume`; else left out.")
    ] = None
    name: Annotated[str | None, Key(LINE, "`mount_volume`: a name for the volume, not used.")] = None
    path: Annotated[
        str | None,
        Key(
            PATH, "`mount_volume`: folder of the machine that holds both containers; relative to the manifest's folder."
        ),
    ] = None


class DataStore(Part):
    title: ClassVar[str] = "in data_stores.0"

    id: Annotated[str, Key(LINE, "A name for the store.", missing="Data store id is not set; write id: my-data")]
    type: Annotated[
        str,
        Key(
            choice(MOUNT_COS, S3, MOUNT_VOLUME, later=_LATER),
            "`mount_cos`: buckets of an S3 store, seen as folders under `/mnt/data` and `/mnt/results`. "
            "`s3_datastore`: the same, under `/job`. `mount_volume`: folders of the machine.",
            missing=f"data_stores.0.type is not set; write type: {MOUNT_COS}, {S3} or {MOUNT_VOLUME}",
        ),
    ]
    training_data: Annotated[
        TrainingData,
        Key(
            PartOf(TrainingData),
            "Where training data is.",
            missing="Training input data is not set; write training_data: with container: BUCKET",
        ),
    ]
    training_results: Annotated[
        TrainingResults | None, Key(PartOf(TrainingResults), "Where results go; without it, to the engine's own store.")
    ] = None
    connection: Annotated[
        dict[str, str],
        Key(
            PartOf(Connection, as_map=True),
            "How the store is reached.",
            missing="Data store connection info not set; write connection: with auth_url, user_name and password, "
            "or with type: host_mount and path",
        ),
    ]

    @classmethod
    def check(cls, written: dict[str, Written], place: Place, path: str, report: Report) -> None:
        kind = written["type"].value if "type" in written else WRONG
        if not isinstance(kind, str):
            return
        if "connection" in written and written["connection"].value is not WRONG:
            connection = written["connection"]
            for message in _connection_problems(kind, connection.value):
                report.say(connection.place, f"{path}.connection{message}")
        for key in ("training_data", "training_results"):
            if key in written and written[key].value is not WRONG:
                bucket = written[key].value.container
                if kind == S3 and bucket in contract.RESERVED_IN_JOB_DIR:
                    report.say(
                        written[key].at,
                        f"{path}.{key}.container is {shown(bucket)}, which {S3} would put over /job/{bucket}; "
                        f"choose another bucket or write type: {MOUNT_COS}",
                    )
                if kind == MOUNT_VOLUME and ("{{" in bucket or "$(" in bucket):
                    report.say(
                        written[key].at,
                        f"{path}.{key}.container is {shown(bucket)}, and {{{{ and $( would be rewritten on their way; "
                        "write a name without them",
                    )


def _connection_problems(kind: str, connection: dict[str, str]) -> list[str]:
    """What does not fit between a store's type and its connection, each as the end of a sentence."""
    wrong = []
    keys = _HOST_KEYS if kind == MOUNT_VOLUME else _S3_KEYS
    for name in connection:
        if name not in keys:
            wrong.append(f".{name} is not used by {kind}; remove it (used: {', '.join(keys)})")
    if kind == MOUNT_VOLUME:
        if connection.get("type") != HOST_MOUNT:
            wrong.append(
                f".type is {shown(connection.get('type', ''))}, and {kind} needs {HOST_MOUNT}; write type: {HOST_MOUNT}"
            )
        if "path" not in connection:
            wrong.append(".path is not set; write path: and the folder of the machine that holds the containers")
        return wrong
    if "auth_url" not in connection:
        wrong.append(".auth_url is not set; write the store's address, such as https://s3.eu-west-1.amazonaws.com")
    if connection.get("type", kind) != kind:
        wrong.append(f".type is {shown(connection['type'])}, and the store's type is {kind}; remove one of the two")
    given = [name for name in ("user_name", "password") if name in connection]
    if len(given) == 1:
        wrong.append(f" has {given[0]} alone; write both user_name and password, or neither")
    if given and "secret" in connection:
        wrong.append(f" has secret and {given[0]}; keep one of them")
    return wrong


class DataStores(ListOf):
    """FfDL took exactly one."""

    null = "Data stores is not set/empty; write one data store, or remove data_stores to train without data"

    def read(self, node: Node, place: Place, path: str, report: Report) -> Any:
        stores = super().read(node, place, path, report)
        items = getattr(node, "items", None)
        if items is not None and not items:
            report.say(node.place, self.null)
            return WRONG
        if items is not None and len(items) > 1:
            report.say(items[1].place, f"{ONLY_ONE}; keep one of the {len(items)}")
            return WRONG
        return stores


DATA_STORES = DataStores(PartOf(DataStore), "[{id: my-data, type: mount_cos, …}]")
