"""The processing model, one stage a module, in the order they run (PROC-7).

compatibility, middleware, enforcement, chunks, text, verification.
"""
