"""The vendor's `kimi web` servers of one home: found, asked, and in two things told what to do.

`home` says which servers there are and what their token is; `client` asks one of them over REST;
`answers` has the shapes of what comes back; `errors` what can go wrong.

What the server streams over its WebSocket is not looked at here.
"""
