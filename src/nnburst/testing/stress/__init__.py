"""Clients in number against one driver, some of them killed, and a checker beside (TL:68)."""
