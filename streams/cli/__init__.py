"""The command `tailrace`: one module a command, loaded when it is typed.

`entry` is what the shell starts; `main` names the commands; `fence` lets no traceback through;
`stack` finds what a command talks to; `terminal` keeps data on stdout and talk on stderr;
`boundary` turns an error into what, why and what to type next, with its exit code.
"""
