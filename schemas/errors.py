"""What can go wrong while a schema is loaded, installed or compared.

SchemaError
├── MigrationChangedError     an applied migration has another text than the one in this release
├── InstallRefusedError       the database or a parameter does not allow the installation
└── ContractMissingError      a file of this package is not where it must be
"""

from __future__ import annotations


class SchemaError(Exception):
    """Base of this tree; its text says what was found and what the operator does."""


class MigrationChangedError(SchemaError):
    """An applied migration differs from the file of this release.

    Operator: install the release that applied it, or restore its file; then add a new migration.
    """


class InstallRefusedError(SchemaError):
    """The installation cannot start or its result is not what was asked for.

    Operator: the text names the parameter or setting and the value that is needed.
    """


class ContractMissingError(SchemaError):
    """A contract, query or migration file is missing or malformed: the package is incomplete.

    Operator: install the package again.
    """
