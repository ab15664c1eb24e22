"""The vendor's `kimi web` servers of one home: found, asked, watched, and in two things told.

`home` says which servers there are and what their token is; `client` asks one of them over REST;
`answers` has the shapes of what comes back; `errors` what can go wrong.

`bridge` gives each server a task (`watch`), whose WebSocket is `conversation`'s: `subscriptions`
knows who is told of there, `wire` the connection's own messages, `cursors` how far each session was
read. `feed` makes events of frames, and `control` the two writes.
"""
