"""The plugin runtime: contexts, fibers, effects, services, events, realms, scopes and config models."""

from .abort import AbortController, AbortSignal
from .context import Context, Group
from .effects import Disposer
from .errors import AbortError, CordisError, HarnessError, InvariantError, describe_error, error_chain
from .events import Bail, Emit, Next, Parallel, Serial, Waterfall
from .fiber import Fiber, FiberState
from .framework_events import (
    ConfigResolve,
    ConfigUpdate,
    Dispatching,
    PluginChanged,
    ServiceChanged,
    StatusChanged,
    TaskFailed,
)
from .layers import AnonymousEntries, NamedEntries, ScopedLayers
from .plugins import plugin, resolve_plugin
from .schema import ConfigError, ConfigModel, field
from .scopes import Scope, ScopeBinding, bind_scope, scope_chain
from .services import Realm, Service, ServiceKey, owned, unwrap
from .spawn import Spawned

__all__ = [
    "AbortController",
    "AbortError",
    "AbortSignal",
    "AnonymousEntries",
    "Bail",
    "ConfigError",
    "ConfigModel",
    "ConfigResolve",
    "ConfigUpdate",
    "Context",
    "CordisError",
    "Dispatching",
    "Disposer",
    "Emit",
    "Fiber",
    "FiberState",
    "Group",
    "HarnessError",
    "InvariantError",
    "NamedEntries",
    "Next",
    "Parallel",
    "PluginChanged",
    "Realm",
    "Scope",
    "ScopeBinding",
    "ScopedLayers",
    "Serial",
    "Service",
    "ServiceChanged",
    "ServiceKey",
    "Spawned",
    "StatusChanged",
    "TaskFailed",
    "Waterfall",
    "bind_scope",
    "describe_error",
    "error_chain",
    "field",
    "owned",
    "plugin",
    "resolve_plugin",
    "scope_chain",
    "unwrap",
]
