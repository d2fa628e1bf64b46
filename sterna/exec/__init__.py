"""Programs that users start by module name: python -m sterna.exec.rpc_server."""
