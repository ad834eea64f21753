"""Our own pool of threads; a part of the launcher (launcher.py). affinity.py binds the pool's workers.

    caller                         worker                        a worker's state
    offers the region      ──▶     FREE, or ASLEEP and woken     FREE ASLEEP ──▶ OFFERED
    waits for answers      ◀──     answers                       OFFERED ──▶ HERE
    makes the team         ──▶     works                         HERE ──▶ WORK ──▶ FREE
    goes on without it             was kept from running         OFFERED HERE ──▶ LATE ──▶ FREE

A worker belongs to the team if it answers in time; otherwise the caller takes its offer back. The system may
keep a worker from running, because another library's threads spin on its core. Then the call only loses that
worker's help. LATE workers get no offers: they make themselves free as soon as they run. A caller takes a
worker by an atomic exchange, and the worker answers by another one. In all other cases only one thread may
change a worker's state: its caller if it is OFFERED or HERE, the worker itself if it is WORK or LATE. So an
old region is never entered.

A worker without work spins for a while, then sleeps. A worker that was kept from running for long has company
on its core. For the next tenth of a second, it sleeps soon, and callers wait for its answer only as long as a
running worker needs. Workers also sleep soon if there are enough callers for all cores. Linux tends to wake a
sleeper on the core of the thread that wakes it. There the sleeper waits until the next tick, even if another
core is idle. So a sleeper is bound to the other cores before it is woken. Once awake, it may run anywhere
again.

Mean time of a call without one rule, relative to the time with it (two cores of a virtual machine, Zen 4,
2026-11):

    company is noted             1.3 to 1.4 x    alternating with onnxruntime
    sleepers are bound           1.9 x           alternating with onnxruntime: 180 of 200 sleepers woke on the
                                                 caller's core, and one in ten after 2 to 4 ms
    callers share the cores      1.1 to 1.2 x    two callers at once
    callers remember the others  1.01 to 1.07 x  two callers at once, between their calls
    trust without company        1.1 x           MobileNetV2 alone
"""

from __future__ import annotations

from autotensor.runtime.native.assembler import Struct

MOST_WORKERS = 256  # number of entries of the team list in `pool_region`

# The workers follow in memory. crowd: threads that calls at the same time needed, if these were more than the
# cores (0: never). until: up to this time, callers share the cores as if this were still so.
POOL = Struct("i32 size · i32 crowd · i64 until · align 64")

WORKER = Struct("""
    i32 state
    i32 nthreads
    i32 tid
    ptr ctx
    align 64
    ptr provider
    i64 thread       ; its pthread_t
    i64 since        ; it has no work
    i64 seen         ; when it last looked at the clock
    i64 company      ; when it was last kept from running
    align 64
    [128] home       ; the cores that it may run on
    [64] mutex
    [64] condition
""")

NUMBERS = {
    "MOST_WORKERS": MOST_WORKERS,
    "HEADER_BYTES": POOL.bytes,
    "FREE": 0,
    "ASLEEP": 1,
    "OFFERED": 2,
    "HERE": 3,
    "WORK": 4,
    "LATE": 5,
    # The time that callers wait for an answer. A spinning worker needs 0.1 us, a sleeper 40 to 110.
    "PROMPT_NS": 3_000,
    "WAKING_NS": 150_000,
    # without company: most calls would take longer than this if the caller worked alone
    "TRUST_NS": 1_000_000,
    # A caller that does something else meanwhile is often back within milliseconds; libgomp spins for 9 ms.
    "PATIENCE_NS": 10_000_000,
    "BRIEF_NS": 50_000,  # with company on the core
    # longest normal time between two looks at the clock: ticks and interrupts take less
    "KEPT_NS": 500_000,
    "COMPANY_NS": 100_000_000,
    "CROWD_NS": 10_000_000,
}

TEXT = r"""
; Takes those workers that answer, at most n - 1, and makes a team with them.
define void @pool_region(ptr %c, i32 %n) {
  %team = alloca [MOST_WORKERS x i32]
  %waiting = alloca waiting, align 8
  store 0, waiting.since(%waiting)
  store 0, waiting.turns(%waiting)
  %provider = load context.provider(%c)
  %pool = load provider.pool(%provider)
  %workers = getelementptr i8, ptr %pool, i64 HEADER_BYTES
  %most = call i32 @fair_share(ptr %provider, ptr %pool, i32 %n)
  %others = sub i32 %most, 1
  %size = load pool.size(%pool)
  for i32 %k = 0 .. %size, i32 %got = 0, i1 %slept = false {
    if sge i32 %got, %others break
    %w = worker.at(%workers, i32 %k)
    %how = call i32 @offer(ptr %w)
    store %k, i32.at(%team, i32 %got)
    %some = icmp ne i32 %how, 0
    %one = zext i1 %some to i32
    %got1 = add i32 %got, %one
    %woken = icmp eq i32 %how, 2
    %slept1 = or i1 %slept, %woken
  } next %got1, %slept1
  if eq i32 %got, 0 {
    call void @call_fn(ptr %c, i32 0, i32 1)
    ret void
  }
  %now = call i64 @clock()
  %brief = select i1 %slept, i64 WAKING_NS, i64 PROMPT_NS
  for i32 %a = 0 .. %got, i32 %members = 0 {
    %ka = load i32.at(%team, i32 %a)
    %wa = worker.at(%workers, i32 %ka)
    %comes = call i1 @answers(ptr %wa, i64 %now, i64 %brief)
    store %ka, i32.at(%team, i32 %members)
    %another = zext i1 %comes to i32
    %members1 = add i32 %members, %another
  } next %members1
  %total = add i32 %members, 1
  store atomic %members, context.unfinished(%c) release
  for i32 %g = 0 .. %members {
    %kg = load i32.at(%team, i32 %g)
    %wg = worker.at(%workers, i32 %kg)
    %tid = add i32 %g, 1
    store %total, worker.nthreads(%wg)
    store %tid, worker.tid(%wg)
    store %c, worker.ctx(%wg)
    store atomic WORK, worker.state(%wg) release
  }
  call void @call_fn(ptr %c, i32 0, i32 %total)
  loop {
    %unfinished = load atomic context.unfinished(%c) acquire
    if eq i32 %unfinished, 0 break
    call void @pause_or_nap(ptr %c, ptr %waiting)
  }
  ret void
}

; Threads of a caller's team: all that it requested, or its share of the cores when others work, too, and all
; together ask for more than there are. They are likely to be back soon if they are not in a region just now.
define internal i32 @fair_share(ptr %provider, ptr %pool, i32 %n) {
  %cores = load provider.cores(%provider)
  %busy = load atomic provider.busy(%provider) monotonic
  %crowd = load atomic pool.crowd(%pool) monotonic
  %shared = icmp sgt i32 %busy, %n
  %many = icmp sgt i32 %busy, %cores
  %crowded = and i1 %shared, %many
  if %crowded {
    %now = call i64 @clock()
    %later = add i64 %now, CROWD_NS
    store atomic %later, pool.until(%pool) monotonic
    store atomic %busy, pool.crowd(%pool) monotonic
  } else {
    if eq i32 %crowd, 0 ret i32 %n
    %until = load atomic pool.until(%pool) monotonic
    %now1 = call i64 @clock()
    if sgt i64 %now1, %until {
      store atomic 0, pool.crowd(%pool) monotonic
      ret i32 %n
    }
  }
  %all = select i1 %crowded, i32 %busy, i32 %crowd
  %scaled = mul i32 %n, %cores
  %share = sdiv i32 %scaled, %all
  %fair = call i32 @llvm.smax.i32(i32 %share, i32 1)
  ret i32 %fair
}

; 1: the worker, which spins, has an offer; 2: it slept and was woken; 0: it cannot be had.
define internal i32 @offer(ptr %w) {
  %state = load atomic worker.state(%w) monotonic
  if eq i32 %state, FREE {
    %won = exchange worker.state(%w), FREE, OFFERED
    %one = zext i1 %won to i32
    ret i32 %one
  }
  if ne i32 %state, ASLEEP ret i32 0
  ; Under the lock, for whatever else wakes it must not bring it home before it is sent away.
  %mutex = worker.mutex(%w)
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %ours = exchange worker.state(%w), ASLEEP, OFFERED
  unless %ours {
    %r3 = call i32 @pthread_mutex_unlock(ptr %mutex)
    ret i32 0
  }
  %now = call i64 @clock()
  store %now, worker.seen(%w)
  call void @send_away(ptr %w)
  %r1 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %r2 = call i32 @pthread_cond_signal(worker.condition(%w))
  ret i32 2
}

; Whether a worker with an offer of that time answers. One that does not has no offer any more.
define internal i1 @answers(ptr %w, i64 %offered, i64 %brief) {
  %company = call i1 @has_company(ptr %w, i64 %offered)
  %limit = select i1 %company, i64 %brief, i64 TRUST_NS
  %until = add i64 %offered, %limit
  loop {
    %state = load atomic worker.state(%w) acquire
    if eq i32 %state, HERE ret i1 true
    call void @relax()
    %now = call i64 @clock()
    if sge i64 %now, %until break
  }
  ; Or just HERE: then its answer is lost, and it sees at once that it is free.
  store atomic LATE, worker.state(%w) release
  ret i1 false
}

; --- its workers: detached threads that never end ---------------------------------------------------------

; Gives the number of workers that could be started; the provider's pool is zeroed memory for `wanted`.
define i32 @start_pool(ptr %provider, i32 %wanted) {
  %pool = load provider.pool(%provider)
  %workers = getelementptr i8, ptr %pool, i64 HEADER_BYTES
  for i32 %k = 0 .. %wanted {
    %w = worker.at(%workers, i32 %k)
    store %provider, worker.provider(%w)
    %thread = worker.thread(%w)
    %r0 = call i32 @pthread_mutex_init(worker.mutex(%w), ptr null)
    %r1 = call i32 @pthread_cond_init(worker.condition(%w), ptr null)
    %r2 = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker_loop, ptr %w)
    if ne i32 %r2, 0 break
    %t = load i64, ptr %thread
    %r3 = call i32 @pthread_detach(i64 %t)
  }
  store %k, pool.size(%pool)
  ret i32 %k
}

define internal ptr @worker_loop(ptr %w) {
  call void @begin_to_wait(ptr %w)
  loop {
    call void @sleep(ptr %w)
    call void @begin_to_wait(ptr %w)
    loop i32 %turn = 0 {
      %state = load atomic worker.state(%w) acquire
      if eq i32 %state, OFFERED {
        %here = exchange worker.state(%w), OFFERED, HERE        ; unless it is LATE by now
        continue %turn
      }
      if eq i32 %state, WORK {
        %n = load worker.nthreads(%w)
        %tid = load worker.tid(%w)
        %c = load worker.ctx(%w)
        call void @call_fn(ptr %c, i32 %tid, i32 %n)
        ; First free, then finished: the same caller's next region must find this worker free. The context may
        ; vanish at once after the second, so nothing of it is touched again.
        store atomic FREE, worker.state(%w) release
        %left = atomicrmw sub context.unfinished(%c), 1 release
        call void @begin_to_wait(ptr %w)
        continue 0
      }
      if eq i32 %state, LATE {
        store atomic FREE, worker.state(%w) release
        continue %turn
      }
      %some = and i32 %turn, 63
      %clock = icmp eq i32 %some, 63
      %free = icmp eq i32 %state, FREE
      %check = and i1 %clock, %free
      if %check {
        %tired = call i1 @is_tired(ptr %w)
        if %tired break
      }
      call void @relax()
      %turn1 = add i32 %turn, 1
    } next %turn1
  }
}

define internal void @begin_to_wait(ptr %w) {
  %now = call i64 @clock()
  store %now, worker.since(%w)
  store %now, worker.seen(%w)
  ret void
}

; Whether a worker has waited long enough, or others want its core.
define internal i1 @is_tired(ptr %w) {
  %now = call i64 @clock()
  call void @note_company(ptr %w, i64 %now)
  %since = load worker.since(%w)
  %waited = sub i64 %now, %since
  %long = icmp sgt i64 %waited, PATIENCE_NS
  %provider = load worker.provider(%w)
  %busy = load atomic provider.busy(%provider) monotonic
  %cores = load provider.cores(%provider)
  %crowded = icmp sgt i32 %busy, %cores
  %recent = call i1 @has_company(ptr %w, i64 %now)
  %brief = icmp sgt i64 %waited, BRIEF_NS
  %polite = and i1 %recent, %brief
  %unwanted = or i1 %crowded, %polite
  %tired = or i1 %long, %unwanted
  ret i1 %tired
}

; A worker remembers when it could not run for long, since it looked last or was called.
define internal void @note_company(ptr %w, i64 %now) {
  %seen = load worker.seen(%w)
  store %now, worker.seen(%w)
  %away = sub i64 %now, %seen
  if sgt i64 %away, KEPT_NS {
    store atomic %now, worker.company(%w) monotonic
  }
  ret void
}

; Whether a worker was kept from running lately.
define internal i1 @has_company(ptr %w, i64 %now) {
  %company = load atomic worker.company(%w) monotonic
  %ago = sub i64 %now, %company
  %recent = icmp slt i64 %ago, COMPANY_NS
  ret i1 %recent
}

; Until somebody has an offer. The state changes under the lock, or before it: no call is missed.
define internal void @sleep(ptr %w) {
  %mutex = worker.mutex(%w)
  %condition = worker.condition(%w)
  call void @note_home(ptr %w)
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %asleep = exchange worker.state(%w), FREE, ASLEEP
  loop {
    %state = load atomic worker.state(%w) acquire
    if ne i32 %state, ASLEEP break
    %r1 = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  }
  %r2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %now = call i64 @clock()
  call void @note_company(ptr %w, i64 %now)
  call void @come_home(ptr %w)
  ret void
}
"""
