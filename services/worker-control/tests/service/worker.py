"""A worker in Python that follows the protocol with redis-py alone: lock, heartbeat, state, control channel, interval.

It is meant to be copied. What it does in a cycle is to count; put your own work into `cycle`.
"""

import json
import os
import signal
import sys
import threading
import time

import redis

# Takes the lock for this incarnation, unless another has it or the orchestrator admits another; returns a fencing token.
ACQUIRE = """
local admitted = redis.call('HGET', KEYS[3], 'incarnation')
if admitted and admitted ~= ARGV[1] then return {'refused', admitted} end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {'held', holder} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local token = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, now))
redis.call('SET', KEYS[2], token)
return {'ok', token}
"""

# One heartbeat: extends the lock and sets heartbeat and state; does nothing when the lock is not ours.
BEAT = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[6])
return 1
"""

# Gives the lock back, if it is ours.
RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1], KEYS[2])
"""


class Worker:
    def __init__(self):
        env = os.environ
        self.id = env["WORKER_PAIR_ID"]
        self.incarnation = env["WORKER_INCARNATION"]
        self.namespace = env.get("WORKER_NAMESPACE", "btr:")
        self.interval = float(env.get("INTERVAL_SEC", "900"))
        self.beat_every = int(env.get("WORKER_HEARTBEAT_INTERVAL_MS", "15000")) / 1000
        self.beat_ttl = env.get("WORKER_HEARTBEAT_TTL_MS", "45000")
        self.lock_ttl = int(env.get("WORKER_LOCK_TTL_MS", "900000"))
        self.state_ttl = env.get("WORKER_STATE_TTL_MS", "60000")
        self.restarting_ttl = int(env.get("WORKER_RESTARTING_TTL_MS", "60000"))
        self.ends_with_orchestrator = env.get("WORKER_ORPHAN") == "exit"
        timeout = int(env.get("WORKER_REDIS_TIMEOUT_MS", "2000")) / 1000
        self.redis = redis.Redis.from_url(env["WORKER_REDIS_URL"], decode_responses=True, socket_timeout=timeout)
        self.stopping = threading.Event()
        # Whether Redis answered last time: without it nothing new is started.
        self.answered = threading.Event()
        # Until when the lock is ours, by the monotonic clock: a process that was paused wakes up with a lock that has ended.
        self.held_until = 0.0
        self.started = int(time.time() * 1000)
        self.epoch = 0
        self.token = None

    def key(self, what):
        return f"{self.namespace}worker:{self.id}:{what}"

    def acquire(self):
        keys = [self.key("lock"), self.key("fence"), self.key("process")]
        began = time.monotonic()
        answer, value = self.redis.eval(ACQUIRE, 3, *keys, self.incarnation, self.lock_ttl)
        if answer != "ok":
            sys.exit(f"{answer}: the lock of {self.id} is not for {self.incarnation} but {value}")
        self.token = int(value)
        self.held_until = began + self.lock_ttl / 1000

    def state(self):
        return json.dumps({
            "pairId": self.id,
            "status": "stopping" if self.stopping.is_set() else "idle",
            "epoch": self.epoch,
            "incarnation": self.incarnation,
            "pid": os.getpid(),
            "fencingToken": self.token,
            "startedAt": self.started,
            "language": "python",
        })

    def beat(self):
        # A lock that is not ours has gone with the data of Redis, and is taken again, or went to another: then we end.
        if not self.prolong():
            try:
                self.acquire()
            except SystemExit as reason:
                print(f"the lock went to another; stopping: {reason}", flush=True)
                os._exit(1)
            self.prolong()
        self.answered.set()

    def prolong(self):
        keys = [self.key("lock"), self.key("heartbeat"), self.key("state")]
        began, now = time.monotonic(), int(time.time() * 1000)
        args = [self.incarnation, self.lock_ttl, now, self.beat_ttl, self.state(), self.state_ttl]
        ours = self.redis.eval(BEAT, 3, *keys, *args) == 1
        if ours:
            self.held_until = began + self.lock_ttl / 1000
        return ours

    def beats(self):
        while not self.stopping.is_set():
            try:
                self.beat()
            except redis.RedisError as error:
                self.answered.clear()
                print(f"no heartbeat: {error}", flush=True)
            self.stopping.wait(self.beat_every)

    def obey(self):
        """Listens to the control channel: a bare word is for everybody, JSON may name one worker."""
        while not self.stopping.is_set():
            try:
                channel = self.redis.pubsub(ignore_subscribe_messages=True)
                channel.subscribe(f"{self.namespace}control")
                while not self.stopping.is_set():
                    message = channel.get_message(timeout=0.2)
                    if message:
                        self.told(message["data"])
            except redis.RedisError:
                self.stopping.wait(0.2)

    def told(self, text):
        try:
            order = {"type": text} if text in ("SHUTDOWN", "RESTART") else json.loads(text)
            if order.get("pairId", self.id) != self.id:
                return
        except (ValueError, AttributeError):
            return
        if order.get("type") == "RESTART":
            self.redis.set(self.key("restarting"), "1", px=self.restarting_ttl)
        if order.get("type") in ("SHUTDOWN", "RESTART"):
            print(f"told: {order['type']}", flush=True)
            self.stopping.set()

    def watch_orchestrator(self):
        """The end of standard input is the end of the orchestrator."""
        while os.read(0, 4096):
            pass
        print("the orchestrator is gone, stopping", flush=True)
        self.stopping.set()

    def may_start(self):
        return self.answered.is_set() and time.monotonic() < self.held_until

    def cycle(self):
        self.epoch += 1

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        self.acquire()
        self.beat()
        tasks = [self.beats, self.obey]
        if self.ends_with_orchestrator:
            tasks.append(self.watch_orchestrator)
        for task in tasks:
            threading.Thread(target=task, daemon=True).start()
        print(f"working as {self.incarnation}", flush=True)
        due = time.monotonic()
        while not self.stopping.is_set():
            if self.may_start():
                self.cycle()
            # The next due time, whatever the cycle took and whatever the wall clock did.
            while due <= time.monotonic():
                due += self.interval
            self.stopping.wait(due - time.monotonic())
        try:
            self.redis.eval(RELEASE, 2, self.key("lock"), self.key("heartbeat"), self.incarnation)
        except redis.RedisError as error:
            # An orchestrator frees it; else it ends by itself.
            print(f"the lock is not given back: {error}", flush=True)


if __name__ == "__main__":
    Worker().run()
