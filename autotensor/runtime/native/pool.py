"""Our own pool of threads; a piece of the launcher (launcher.py). Binding its workers is in affinity.py.

    caller                         worker                        a worker's state
    offers the region      ──▶     FREE, or ASLEEP and woken     FREE ASLEEP ──▶ OFFERED
    waits for answers      ◀──     answers                       OFFERED ──▶ HERE
    makes the team         ──▶     works                         HERE ──▶ WORK ──▶ FREE
    goes on without it             was kept from running         OFFERED HERE ──▶ LATE ──▶ FREE

A worker belongs to the team if it answers in time; otherwise the caller takes its offer back, and a worker
that the system keeps from running, because another library's threads spin on its core, costs the call
nothing but its help. LATE workers get no offers: they make themselves free as soon as they run. Callers take
a worker by an exchange, and it answers by one; else the state of one that is OFFERED or HERE is its caller's
alone to change, and of one that has WORK or is LATE its own. So an old region is never entered.

A worker without work spins for a while, then sleeps. One that was kept from running for long has company on
its core: for the next tenth of a second it sleeps soon, and callers wait for its answer no longer than one
needs that can run. Workers sleep soon, too, where callers are enough for all cores. Linux tends to wake a
sleeper on the core of the thread that wakes it, which then waits for it until the next tick, though another
core is idle: before it is woken a sleeper is bound to the other cores. Once awake it may run anywhere again.

What each rule is worth, mean of a call without it (two cores of a virtual machine, Zen 4, 2026-11): in turns
with onnxruntime, without knowing company 1.3 to 1.4 x, without binding 1.9 x (180 of 200 sleepers woke on the
caller's core, and one in ten after 2 to 4 ms); two callers at once that do not share the cores 1.1 to 1.2 x,
and that forget each other between calls 1.01 to 1.07 x; MobileNetV2 alone, without trust where there is no
company, 1.1 x.
"""

from __future__ import annotations

HEADER_BYTES = 64
WORKER_BYTES = 384
MOST_WORKERS = 256  # size of the team list in `pool_region`

NUMBERS = {
    "MOST_WORKERS": MOST_WORKERS,
    "FREE": 0,
    "ASLEEP": 1,
    "OFFERED": 2,
    "HERE": 3,
    "WORK": 4,
    "LATE": 5,
    # How long callers wait for an answer. One that spins needs 0.1 us, a sleeper 40 to 110.
    "PROMPT_NS": 3_000,
    "WAKING_NS": 150_000,
    "TRUST_NS": 1_000_000,  # without company: to work alone would take most calls longer
    # A caller who does something else meanwhile is often back within milliseconds; libgomp spins for 9.
    "PATIENCE_NS": 10_000_000,
    "BRIEF_NS": 50_000,  # with company
    "KEPT_NS": 500_000,  # between two looks at the clock: ticks and interrupts take less
    "COMPANY_NS": 100_000_000,
    "CROWD_NS": 10_000_000,
}

TEXT = r"""
; --- the pool ---------------------------------------------------------------------------------------------

%pool = type { i32, i32, i64, [48 x i8], [0 x %worker] }
;              0    1    2               4
;              workers   until: crowd threads were asked for at once, more than there are cores; for so long
;                   crowd       callers share the cores as if they still were. 0: none

%home = type [128 x i8]
%lock = type [64 x i8]

%worker = type { i32, i32, i32, ptr, [40 x i8], ptr, ptr, i64, i64, i64, [24 x i8], %home, %lock, %lock }
;                0    1    2    3               5    6    7    8    9               11     12     13
;                state     tid  ctx             provider  since     company                mutex  condition
;                     nthreads                       thread    seen
;
; thread: its pthread_t. home: the cores that it may run on. Times: since when it has no work; when it last
; looked at the clock; when it was last kept from running.

; Takes those workers that answer, at most n - 1, and makes a team with them.
define void @pool_region(ptr %c, i32 %n) {
entry:
  %team = alloca [MOST_WORKERS x i32]
  %waiting = alloca %waiting
  store %waiting zeroinitializer, ptr %waiting
  %p2 = getelementptr %ctx, ptr %c, i32 0, i32 2
  %provider = load ptr, ptr %p2
  %p4 = getelementptr %provider, ptr %provider, i32 0, i32 4
  %pool = load ptr, ptr %p4
  %most = call i32 @fair_share(ptr %provider, ptr %pool, i32 %n)
  %others = sub i32 %most, 1
  %size = load i32, ptr %pool
  br label %offer
offer:
  %k = phi i32 [0, %entry], [%k1, %offered]
  %got = phi i32 [0, %entry], [%got1, %offered]
  %slept = phi i1 [false, %entry], [%slept1, %offered]
  %left = icmp slt i32 %k, %size
  %want = icmp slt i32 %got, %others
  %go = and i1 %left, %want
  br i1 %go, label %try, label %answers
try:
  %w = getelementptr %pool, ptr %pool, i32 0, i32 4, i32 %k
  %how = call i32 @offer(ptr %w)
  %slot = getelementptr i32, ptr %team, i32 %got
  store i32 %k, ptr %slot
  br label %offered
offered:
  %some = icmp ne i32 %how, 0
  %one = zext i1 %some to i32
  %got1 = add i32 %got, %one
  %woken = icmp eq i32 %how, 2
  %slept1 = or i1 %slept, %woken
  %k1 = add i32 %k, 1
  br label %offer
answers:
  %alone = icmp eq i32 %got, 0
  br i1 %alone, label %serial, label %ask
serial:
  call void @call_fn(ptr %c, i32 0, i32 1)
  ret void
ask:
  %now = call i64 @clock()
  %brief = select i1 %slept, i64 WAKING_NS, i64 PROMPT_NS
  br label %answer
answer:
  %a = phi i32 [0, %ask], [%a1, %heard]
  %members = phi i32 [0, %ask], [%members1, %heard]
  %unheard = icmp slt i32 %a, %got
  br i1 %unheard, label %hear, label %begin
hear:
  %pa = getelementptr i32, ptr %team, i32 %a
  %ka = load i32, ptr %pa
  %wa = getelementptr %pool, ptr %pool, i32 0, i32 4, i32 %ka
  %comes = call i1 @answers(ptr %wa, i64 %now, i64 %brief)
  %pm = getelementptr i32, ptr %team, i32 %members
  store i32 %ka, ptr %pm
  br label %heard
heard:
  %another = zext i1 %comes to i32
  %members1 = add i32 %members, %another
  %a1 = add i32 %a, 1
  br label %answer
begin:
  %total = add i32 %members, 1
  %p11 = getelementptr %ctx, ptr %c, i32 0, i32 11
  store atomic i32 %members, ptr %p11 release, align 4
  br label %give
give:
  %g = phi i32 [0, %begin], [%tid, %next]
  %all = icmp sge i32 %g, %members
  br i1 %all, label %own, label %next
next:
  %pg = getelementptr i32, ptr %team, i32 %g
  %kg = load i32, ptr %pg
  %wg = getelementptr %pool, ptr %pool, i32 0, i32 4, i32 %kg
  %tid = add i32 %g, 1
  %w1 = getelementptr %worker, ptr %wg, i32 0, i32 1
  store i32 %total, ptr %w1
  %w2 = getelementptr %worker, ptr %wg, i32 0, i32 2
  store i32 %tid, ptr %w2
  %w3 = getelementptr %worker, ptr %wg, i32 0, i32 3
  store ptr %c, ptr %w3
  store atomic i32 WORK, ptr %wg release, align 4
  br label %give
own:
  call void @call_fn(ptr %c, i32 0, i32 %total)
  br label %join
join:
  %unfinished = load atomic i32, ptr %p11 acquire, align 4
  %finished = icmp eq i32 %unfinished, 0
  br i1 %finished, label %done, label %wait
wait:
  call void @pause_or_nap(ptr %c, ptr %waiting)
  br label %join
done:
  ret void
}

; Threads of a caller's team: all that it asked for, or its share of the cores when others work, too, and all
; together ask for more than there are. They are likely to be back soon if they are not in a region just now.
define internal i32 @fair_share(ptr %provider, ptr %pool, i32 %n) {
entry:
  %p5 = getelementptr %provider, ptr %provider, i32 0, i32 5
  %cores = load i32, ptr %p5
  %p6 = getelementptr %provider, ptr %provider, i32 0, i32 6
  %busy = load atomic i32, ptr %p6 monotonic, align 4
  %pcrowd = getelementptr %pool, ptr %pool, i32 0, i32 1
  %crowd = load atomic i32, ptr %pcrowd monotonic, align 4
  %puntil = getelementptr %pool, ptr %pool, i32 0, i32 2
  %shared = icmp sgt i32 %busy, %n
  %many = icmp sgt i32 %busy, %cores
  %crowded = and i1 %shared, %many
  br i1 %crowded, label %note, label %alone
note:
  %now = call i64 @clock()
  %later = add i64 %now, CROWD_NS
  store atomic i64 %later, ptr %puntil monotonic, align 8
  store atomic i32 %busy, ptr %pcrowd monotonic, align 4
  br label %divide
alone:
  %calm = icmp eq i32 %crowd, 0
  br i1 %calm, label %whole, label %remember
remember:
  %until = load atomic i64, ptr %puntil monotonic, align 8
  %now1 = call i64 @clock()
  %over = icmp sgt i64 %now1, %until
  br i1 %over, label %forget, label %divide
forget:
  store atomic i32 0, ptr %pcrowd monotonic, align 4
  br label %whole
divide:
  %all = phi i32 [%busy, %note], [%crowd, %remember]
  %scaled = mul i32 %n, %cores
  %share = sdiv i32 %scaled, %all
  %fair = call i32 @llvm.smax.i32(i32 %share, i32 1)
  ret i32 %fair
whole:
  ret i32 %n
}

; 1: the worker, which spins, has an offer; 2: it slept and was woken; 0: it cannot be had.
define internal i32 @offer(ptr %w) {
entry:
  %state = load atomic i32, ptr %w monotonic, align 4
  switch i32 %state, label %no [i32 FREE, label %awake
                                i32 ASLEEP, label %asleep]
awake:
  %swap = cmpxchg ptr %w, i32 FREE, i32 OFFERED acq_rel monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  %one = zext i1 %won to i32
  ret i32 %one
asleep:
  ; Under the lock, for whatever else wakes it must not bring it home before it is sent away.
  %mutex = getelementptr %worker, ptr %w, i32 0, i32 12
  %cond = getelementptr %worker, ptr %w, i32 0, i32 13
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %swap2 = cmpxchg ptr %w, i32 ASLEEP, i32 OFFERED acq_rel monotonic
  %ours = extractvalue { i32, i1 } %swap2, 1
  br i1 %ours, label %wake, label %lost
wake:
  %now = call i64 @clock()
  %seen = getelementptr %worker, ptr %w, i32 0, i32 8
  store i64 %now, ptr %seen
  call void @send_away(ptr %w)
  %r1 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %r2 = call i32 @pthread_cond_signal(ptr %cond)
  ret i32 2
lost:
  %r3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %no
no:
  ret i32 0
}

; Whether a worker with an offer of that time answers. One that does not has no offer any more.
define internal i1 @answers(ptr %w, i64 %offered, i64 %brief) {
entry:
  %company = call i1 @has_company(ptr %w, i64 %offered)
  %limit = select i1 %company, i64 %brief, i64 TRUST_NS
  %until = add i64 %offered, %limit
  br label %look
look:
  %state = load atomic i32, ptr %w acquire, align 4
  %here = icmp eq i32 %state, HERE
  br i1 %here, label %yes, label %wait
wait:
  call void @relax()
  %now = call i64 @clock()
  %early = icmp slt i64 %now, %until
  br i1 %early, label %look, label %give_up
give_up:
  ; Or just HERE: then its answer is lost, and it sees at once that it is free.
  store atomic i32 LATE, ptr %w release, align 4
  ret i1 false
yes:
  ret i1 true
}

; --- its workers: detached threads that never end ---------------------------------------------------------

; Gives the number of workers that could be started; the provider's pool is zeroed memory for `wanted`.
define i32 @start_pool(ptr %provider, i32 %wanted) {
entry:
  %p4 = getelementptr %provider, ptr %provider, i32 0, i32 4
  %pool = load ptr, ptr %p4
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%k1, %started]
  %more = icmp slt i32 %k, %wanted
  br i1 %more, label %make, label %done
make:
  %w = getelementptr %pool, ptr %pool, i32 0, i32 4, i32 %k
  %w5 = getelementptr %worker, ptr %w, i32 0, i32 5
  store ptr %provider, ptr %w5
  %thread = getelementptr %worker, ptr %w, i32 0, i32 6
  %mutex = getelementptr %worker, ptr %w, i32 0, i32 12
  %cond = getelementptr %worker, ptr %w, i32 0, i32 13
  %r0 = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %r1 = call i32 @pthread_cond_init(ptr %cond, ptr null)
  %r2 = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker_loop, ptr %w)
  %ok = icmp eq i32 %r2, 0
  br i1 %ok, label %started, label %done
started:
  %t = load i64, ptr %thread
  %r3 = call i32 @pthread_detach(i64 %t)
  %k1 = add i32 %k, 1
  br label %loop
done:
  store i32 %k, ptr %pool
  ret i32 %k
}

define internal ptr @worker_loop(ptr %w) {
entry:
  call void @begin_to_wait(ptr %w)
  br label %sleep
look:
  %turn = phi i32 [%turn1, %pause], [0, %sleep], [%turn, %answer], [%turn, %late], [0, %work]
  %state = load atomic i32, ptr %w acquire, align 4
  switch i32 %state, label %pause [i32 FREE, label %free
                                   i32 OFFERED, label %answer
                                   i32 WORK, label %work
                                   i32 LATE, label %late]
free:
  %some = and i32 %turn, 63
  %clock = icmp eq i32 %some, 63
  br i1 %clock, label %check, label %pause
check:
  %tired = call i1 @is_tired(ptr %w)
  br i1 %tired, label %sleep, label %pause
pause:
  call void @relax()
  %turn1 = add i32 %turn, 1
  br label %look
sleep:
  call void @sleep(ptr %w)
  call void @begin_to_wait(ptr %w)
  br label %look
answer:
  %swap = cmpxchg ptr %w, i32 OFFERED, i32 HERE acq_rel monotonic        ; unless it is LATE by now
  br label %look
late:
  store atomic i32 FREE, ptr %w release, align 4
  br label %look
work:
  %p1 = getelementptr %worker, ptr %w, i32 0, i32 1
  %n = load i32, ptr %p1
  %p2 = getelementptr %worker, ptr %w, i32 0, i32 2
  %tid = load i32, ptr %p2
  %p3 = getelementptr %worker, ptr %w, i32 0, i32 3
  %c = load ptr, ptr %p3
  call void @call_fn(ptr %c, i32 %tid, i32 %n)
  ; First free, then finished: the same caller's next region must find this worker free. The context may
  ; vanish at once after the second, so nothing of it is touched again.
  store atomic i32 FREE, ptr %w release, align 4
  %p11 = getelementptr %ctx, ptr %c, i32 0, i32 11
  %left = atomicrmw sub ptr %p11, i32 1 release
  call void @begin_to_wait(ptr %w)
  br label %look
}

define internal void @begin_to_wait(ptr %w) {
  %now = call i64 @clock()
  %p7 = getelementptr %worker, ptr %w, i32 0, i32 7
  store i64 %now, ptr %p7
  %p8 = getelementptr %worker, ptr %w, i32 0, i32 8
  store i64 %now, ptr %p8
  ret void
}

; Whether a worker has waited long enough, or others want its core.
define internal i1 @is_tired(ptr %w) {
entry:
  %now = call i64 @clock()
  call void @note_company(ptr %w, i64 %now)
  %p7 = getelementptr %worker, ptr %w, i32 0, i32 7
  %since = load i64, ptr %p7
  %waited = sub i64 %now, %since
  %long = icmp sgt i64 %waited, PATIENCE_NS
  %p5 = getelementptr %worker, ptr %w, i32 0, i32 5
  %provider = load ptr, ptr %p5
  %p6 = getelementptr %provider, ptr %provider, i32 0, i32 6
  %busy = load atomic i32, ptr %p6 monotonic, align 4
  %pcores = getelementptr %provider, ptr %provider, i32 0, i32 5
  %cores = load i32, ptr %pcores
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
entry:
  %p8 = getelementptr %worker, ptr %w, i32 0, i32 8
  %seen = load i64, ptr %p8
  store i64 %now, ptr %p8
  %away = sub i64 %now, %seen
  %kept = icmp sgt i64 %away, KEPT_NS
  br i1 %kept, label %note, label %done
note:
  %p9 = getelementptr %worker, ptr %w, i32 0, i32 9
  store atomic i64 %now, ptr %p9 monotonic, align 8
  br label %done
done:
  ret void
}

; Whether a worker was kept from running lately.
define internal i1 @has_company(ptr %w, i64 %now) {
  %p9 = getelementptr %worker, ptr %w, i32 0, i32 9
  %company = load atomic i64, ptr %p9 monotonic, align 8
  %ago = sub i64 %now, %company
  %recent = icmp slt i64 %ago, COMPANY_NS
  ret i1 %recent
}

; Until somebody has an offer. The state changes under the lock, or before it: no call is missed.
define internal void @sleep(ptr %w) {
entry:
  %mutex = getelementptr %worker, ptr %w, i32 0, i32 12
  %cond = getelementptr %worker, ptr %w, i32 0, i32 13
  call void @note_home(ptr %w)
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %swap = cmpxchg ptr %w, i32 FREE, i32 ASLEEP acq_rel monotonic
  br label %look
look:
  %state = load atomic i32, ptr %w acquire, align 4
  %asleep = icmp eq i32 %state, ASLEEP
  br i1 %asleep, label %wait, label %awake
wait:
  %r1 = call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %look
awake:
  %r2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %now = call i64 @clock()
  call void @note_company(ptr %w, i64 %now)
  call void @come_home(ptr %w)
  ret void
}
"""
