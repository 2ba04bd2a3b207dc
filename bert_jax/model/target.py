"""The device that a program is traced for."""

from typing import Any

import jax


def target_device() -> Any:
    """Return the default device, for which the step is traced: a `jax.Device`.

    A dry run sets it to a device that it compiles for, which need not be present.
    `jax.lax.platform_dependent` chooses later, when a traced program is lowered; that
    is too late where both choices would be differentiated, or need a library.
    """
    config: Any = jax.config
    chosen = config.jax_default_device
    if isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return chosen or jax.devices()[0]
