"""Registering our hooks with Kimi Code: its config.toml, the installed shim, its version.

Rules:
- An edit of config.toml is a splice of bytes that was checked by parsing before it is written.
- What cannot be edited with certainty is refused with the line, the reason and the remedy.
- The planning half (`events`, `command`, `vendor_schema`, `toml_statements`, `config_text`,
  `block`, `config_edit`) is bytes in, bytes out. It imports neither files nor clock nor
  environment, and a test holds it to that. The other half does nothing but read, ask and write.

The vendor's behaviour that all this rests on was observed on 0.28.0, 0.42.0 and 2.1.0.
"""
