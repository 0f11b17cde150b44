"""Walks code for what can run a stranger's code, or open a door to one: each find is a line and a reason."""

import ast
import re
from collections.abc import Iterator

# Reading with these runs whatever the bytes say.
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN = {
    "os.system": "runs a shell",
    "os.popen": "runs a shell",
    "pandas.read_pickle": "unpickles",
    "ssl._create_unverified_context": "trusts anybody",
    "tempfile.mktemp": "leaves a name that others may take",
    "torch.export.load": "unpickles",
    "torch.hub.load": "runs code from elsewhere",
    "torch.package.PackageImporter": "runs code from a file",
    "mlflow.pyfunc.load_model": "runs a model's code",
    "mlflow.sklearn.load_model": "unpickles",
    "mlflow.pytorch.load_model": "unpickles",
    "mlflow.sklearn.log_model": "pickles",
    "mlflow.pytorch.log_model": "pickles",
}
YAML_LOADERS = {"yaml.load", "yaml.load_all"}
SAFE_LOADERS = {"yaml.SafeLoader", "yaml.CSafeLoader"}
UNSAFE_YAML = {"yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all"}
EVERYWHERE = re.compile(r"(?<![\d.])0\.0\.0\.0(?![\d.])|^::$|\[::\]")
# An address that goes over the network in the clear; names of XML's vocabularies are no addresses.
IN_THE_CLEAR = re.compile(r"^http://(?!127\.0\.0\.1\b|localhost\b|\[::1\]|www\.w3\.org/)", re.IGNORECASE)


def dangers(source: str) -> list[str]:
    """What is dangerous in a module's text: "line: reason"."""
    tree = ast.parse(source)
    names = dict(_imported_names(tree))
    found = []
    for node in ast.walk(tree):
        reasons = (*_imports(node), *_call(node, names), *_text(node))
        found += [f"{getattr(node, 'lineno', 0)}: {reason}" for reason in reasons]
    return found


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What each name of the module stands for: np -> numpy, load -> torch.load."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _imports(node: ast.AST) -> Iterator[str]:
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    for module in modules:
        if set(module.split(".")) & UNPICKLERS:
            yield f"imports {module}, which unpickles"


def _call(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    called = _dotted(node.func, names)
    given = {word.arg: word.value for word in node.keywords if word.arg}
    if isinstance(node.func, ast.Name) and node.func.id in BUILTINS and node.func.id not in names:
        yield f"calls {node.func.id}"
    if called == "importlib.import_module" and node.args and _constant(node.args[0]) in UNPICKLERS:
        yield "imports an unpickler by name"
    if called in FORBIDDEN:
        yield f"{called} {FORBIDDEN[called]}"
    if "allow_pickle" in given and not _is(given["allow_pickle"], False):
        yield "allow_pickle is not False"
    if called.endswith("load_state_dict_from_url") or called == "torch.load":
        if not _is(given.get("weights_only"), True):
            yield f"{called} without weights_only=True"
    elif "weights_only" in given and not _is(given["weights_only"], True):
        yield "weights_only is not True"
    if called in UNSAFE_YAML or (called in YAML_LOADERS and not _safe_loader(node, given, names)):
        yield f"{called} without SafeLoader"
    if called == "ruamel.yaml.YAML" and _constant(given.get("typ")) == "unsafe":
        yield "an unsafe YAML reader"
    if "shell" in given and not _is(given["shell"], False):
        yield "a shell"
    if "verify" in given and _is(given["verify"], False):
        yield "verify=False"
    yield from _models_and_types(called, given, names)
    if called.split(".")[-1] == "bind" and any(_is(part, "") for part in ast.walk(node)):
        yield "binds to all addresses"
    if "trust_remote_code" in given and not _is(given["trust_remote_code"], False):
        yield "trusts code from elsewhere"


def _models_and_types(called: str, given: dict[str, ast.expr], names: dict[str, str]) -> Iterator[str]:
    model = given.get("python_model")
    if model is not None:
        as_text = isinstance(model, ast.Call) and _dotted(model.func, names) == "str"
        if not as_text and not isinstance(_constant(model), str):
            yield "a model given as an object would be pickled; give the path of its code"
    if called in ("skops.io.load", "skops.io.loads"):
        trusted = given.get("trusted")
        if trusted is None or _is(trusted, True) or isinstance(trusted, ast.Call):
            yield "skops without a list of trusted types"


def _text(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return
    if EVERYWHERE.search(node.value):
        yield "an address that means all of them"
    if IN_THE_CLEAR.match(node.value):
        yield f"an address in the clear: {node.value}"


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    """torch.load of whatever it is called here; of what is no plain name, its last part."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""


def _safe_loader(node: ast.Call, given: dict[str, ast.expr], names: dict[str, str]) -> bool:
    loader = given.get("Loader") or (node.args[1] if len(node.args) > 1 else None)
    return loader is not None and _dotted(loader, names) in SAFE_LOADERS


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is(node: ast.AST | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
