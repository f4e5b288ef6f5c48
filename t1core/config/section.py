"""What every section of a configuration is: frozen, closed to unknown keys, a docstring under each field."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """One section of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
