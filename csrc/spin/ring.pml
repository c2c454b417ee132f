/* The ring and the wait/wake protocol, one inline for each C function of ring_buffer.c, event_flag.c and
 * waiter.c. run.sh explores every state of it, with these:
 *
 *   CAP              elements of the ring
 *   DEATH            either side is killed between any two steps
 *   CALL_READER, CALL_WRITER
 *                    another thread stops that waiter at any moment (nnb_waiter_call)
 *   LOOP             the reader sometimes waits for a byte in an event loop (nnb_client_arm)
 *   HOSTILE_WRITER, HOSTILE_READER
 *                    that side writes any value into any word that it can reach, for ever
 *   NO_FENCE, NO_SLEEPER_FENCE, NO_WAKE, NO_RELEASE, NO_ACQUIRE, LATE_COPY_OUT, ONE_ATTENTION_BIT,
 *   NO_CHECK, NO_DEADLINE, NO_SECOND_LOOK
 *                    a bug, which must be found
 *
 * Counters are byte counts modulo M, as the real ones are modulo 2^64. A release store waits in a store
 * buffer until `memory` lets it out, so that the same side's next load may come first: nnb_fence and each
 * read-modify-write wait for it. Without them, what release and acquire order changes places.
 * An element holds its own number, so that a torn, lost or repeated packet shows at once. What only looks at
 * a side's own variables happens together with the step before it (`atomic`), and variables that are no
 * longer needed are set to 0: both only make the state space smaller. */
#ifndef CAP
#define CAP 2
#endif
#if defined(HOSTILE_WRITER) || defined(HOSTILE_READER)
#define HOSTILE 1
#define QUANTUM 2 /* so that a counter can also be misaligned */
#define M 16
#else
#define HOSTILE 0
#define QUANTUM 1
#define M (CAP < 4 -> 4 : 8)
#endif
#ifndef ENDS
#define ENDS 0 /* 1: show that every wait ends soon after its deadline, whatever the other side writes */
#endif
#define LONGEST 2 /* elements of a packet */
#define BYTES (CAP * QUANTUM)
#define FREE ((BYTES - SUB(write_index, peer_read)) & (M - 1)) /* unsigned: less than nothing is a lot */
#define SUB(a, b) (((a) - (b)) & (M - 1))
#define ADD(a, b) (((a) + (b)) & (M - 1))
#ifndef NO_CHECK
#define PLAUSIBLE(distance) ((distance) <= BYTES && (distance) % QUANTUM == 0)
#else
#define PLAUSIBLE(distance) true
#endif

#define NOT_FULL 1
#define NOT_EMPTY 2
#define READER_ATTENTION 4
#ifdef ONE_ATTENTION_BIT
#define WRITER_ATTENTION 4
#else
#define WRITER_ATTENTION 8
#endif
#define READER_BITS (NOT_EMPTY | READER_ATTENTION)
#define WRITER_BITS (NOT_FULL | WRITER_ATTENTION)
#define ASYNC 16
#define ALL_BITS 31

/* What both sides reach. */
byte write_counter, read_counter, flag;
byte number[CAP];    /* what an element holds: its own number */
byte announced[CAP]; /* elements of the packet that begins here; 0 inside one */
bool last[CAP];      /* the element ends its packet */

/* Stores that are not visible yet; each side's own truth; who sleeps, has died, has ended. */
bool write_stored, read_stored;
byte stored_write, stored_read;
byte write_index, read_index, wanted;
bool reader_asleep, writer_asleep, reader_dead, writer_dead, reader_ended, writer_ended;
bool reader_attention, writer_attention;
bool in_loop, byte_there; /* the reader waits in an event loop; it has been sent a byte */
bool late; /* the deadline has passed */

/* atomics.h */
inline store_release(stored, value, new) { atomic { !stored -> value = new; stored = true } }

/* event_flag.c */
inline futex_wake(bits) {
    atomic {
#ifndef NO_WAKE
        if :: (bits) & READER_BITS -> reader_asleep = false :: else fi;
        if :: (bits) & WRITER_BITS -> writer_asleep = false :: else fi
#endif
        skip
    }
}
inline event_flag_wake(stored, bits) {
    atomic { !stored -> seen = flag & (bits); flag = flag | (bits) };
    if :: seen != (bits) -> futex_wake(bits) :: else fi
}
inline event_flag_notify(stored, bits) {
#ifndef NO_FENCE
    !stored;
#endif
    seen = flag & (bits);
    if :: seen != (bits) -> event_flag_wake(stored, bits) :: else fi;
    seen = 0
}
inline event_flag_prepare(stored, bits) {
    atomic { !stored -> flag = flag & (ALL_BITS - (bits)) } /* and a fence: the next load comes after it */
}
/* `over`: the deadline may pass in this sleep. A sleep that nothing ends shows that a wake was lost. */
inline event_flag_sleep(asleep, bits, over) {
    seen = flag;
    if
    :: seen & (bits)
    :: else ->
        atomic { asleep = (flag == seen) }; /* the kernel compares and sleeps as one */
        if
        :: !asleep
        :: atomic { over -> asleep = false; timed_out = true }
        fi
    fi;
    seen = 0
}

/* ring_buffer.c */
inline refresh_writer() {
    atomic {
        peer = write_counter;
        if
        :: PLAUSIBLE(SUB(peer, read_index)) -> peer_write = peer
        :: else -> corrupt = true
        fi;
        peer = 0
    }
}
inline refresh_reader() {
    atomic {
        peer = read_counter;
        if
        :: PLAUSIBLE(SUB(write_index, peer)) -> peer_read = peer
        :: else -> corrupt = true
        fi;
        peer = 0
    }
}
inline copy_out(count) {
    do
    :: atomic {
        k < (count) ->
        place = (read_offset / QUANTUM + k) % CAP;
        assert(k < CAP); /* never more than the private copy has room for */
#ifdef NO_ACQUIRE
        assert(number[place] == ADD(read_index, k) && (k > 0 || early == 255 || early == read_index));
#endif
        assert(HOSTILE || number[place] == ADD(read_index, k));
        ended = last[place];
        place = 0;
        k++
       }
    :: atomic { else -> k = 0; break }
    od
}
inline advance_read(count) {
    atomic {
        read_index = ADD(read_index, (count) * QUANTUM);
        read_offset = (read_offset + (count) * QUANTUM) % BYTES
    }
}
/* Copies `count` elements out and gives their room back. */
inline consume(count) {
#ifdef LATE_COPY_OUT
    if
    :: store_release(read_stored, stored_read, ADD(read_index, (count) * QUANTUM));
       copy_out(count);
       advance_read(count)
    :: skip ->
#endif
    copy_out(count);
    atomic {
        advance_read(count);
        store_release(read_stored, stored_read, read_index)
    }
#ifdef LATE_COPY_OUT
    fi
#endif
    ;
    atomic { assert(HOSTILE || ended); ended = false; count = 0 } /* whole packets only */
}
inline copy_in(count) {
    do
    :: atomic {
        k < (count) ->
        place = (write_offset / QUANTUM + k) % CAP;
        assert(SUB(write_index, peer_read) + (k + 1) * QUANTUM <= BYTES); /* only free room is written */
        number[place] = ADD(write_index, k);
        announced[place] = (k == 0 -> (count) : 0);
        last[place] = (k + 1 == (count));
        place = 0;
        k++
       }
    :: atomic { else -> k = 0; break }
    od
}
inline publish(count) {
    store_release(write_stored, stored_write, ADD(write_index, (count) * QUANTUM));
}
inline commit_write(count) {
#ifdef NO_RELEASE
    if
    :: publish(count); copy_in(count)
    :: skip ->
#endif
    copy_in(count);
    publish(count)
#ifdef NO_RELEASE
    fi
#endif
    ;
    atomic {
        write_index = ADD(write_index, (count) * QUANTUM);
        write_offset = (write_offset + (count) * QUANTUM) % BYTES
    }
}

/* burst_server.c: announce and awaken */
inline announce() {
#ifndef NO_FENCE
    !write_stored;
#endif
    seen = flag & (NOT_EMPTY | ASYNC);
    if
    :: seen == NOT_EMPTY
    :: else ->
        event_flag_notify(write_stored, NOT_EMPTY);
        atomic { seen = flag & ASYNC; flag = flag & (ALL_BITS - ASYNC) };
        if :: seen -> byte_there = true :: else fi
    fi;
    seen = 0
}

/* burst_client.c: nnb_client_arm, then the loop's wait for a byte */
inline await_byte() {
    do
    :: ready = (write_counter != read_index);
       if :: ready -> break :: else fi;
       atomic { flag = flag | ASYNC };
#ifndef NO_SECOND_LOOK
       ready = (write_counter != read_index);
       if :: ready -> break :: else fi;
#endif
       in_loop = true;
       if
       :: atomic { byte_there -> byte_there = false; in_loop = false }
       :: atomic { writer_dead -> in_loop = false; late_now = true; break }
       fi
    od
}

/* waiter.c: sleep_until. A plan's sleep ends at its time, the last one only at the deadline. */
inline wait_readable() {
#ifdef NO_ACQUIRE /* the first element may be loaded before the counter that says it is there */
    early = number[read_offset / QUANTUM];
#endif
    atomic { ready = (write_counter != read_index); if :: ready -> skip :: else -> early = 255 fi };
    atomic {
        if :: !ready -> planned = true :: true fi /* a rhythm is known, or not */
    };
    do
    :: ready || stop || late_now -> break
    :: else ->
        timed_out = false;
        do
        ::
#ifdef NO_SLEEPER_FENCE
           if
           :: ready = (write_counter != read_index); event_flag_prepare(read_stored, READER_BITS)
           :: skip ->
#endif
           event_flag_prepare(read_stored, READER_BITS);
           ready = (write_counter != read_index)
#ifdef NO_SLEEPER_FENCE
           fi
#endif
           ;
           stop = reader_attention;
           if :: ready || stop || timed_out -> break :: else fi;
#ifndef NO_DEADLINE
           if :: late -> timed_out = true; break :: else fi;
#endif
           event_flag_sleep(reader_asleep, READER_BITS, planned || late || writer_dead);
           if :: timed_out -> ready = (write_counter != read_index); break :: else fi
        od;
        atomic { flag = flag | NOT_EMPTY }; /* nnb_event_flag_awake */
        atomic { late_now = timed_out && !planned && !ready; planned = false; timed_out = false }
    od;
    planned = false
}
inline wait_writable() {
    timed_out = false;
    do
    :: event_flag_prepare(write_stored, WRITER_BITS);
       refresh_reader();
       stop = writer_attention;
       if
       :: corrupt || stop || timed_out || wanted * QUANTUM <= FREE -> break
       :: else
       fi;
#ifndef NO_DEADLINE
       if :: late -> timed_out = true; break :: else fi;
#endif
       event_flag_sleep(writer_asleep, WRITER_BITS, late || reader_dead)
    od
}

proctype reader() {
    byte read_offset, peer_write, peer, seen, place, k, count, early = 255;
    bool ready, stop, planned, timed_out, late_now, corrupt, ended;
    {
        do
        ::
#ifdef LOOP
           if :: wait_readable() :: await_byte() fi;
#else
           wait_readable();
#endif
           if :: !ready || stop -> break :: else fi;
           ready = false;
           if
           :: true -> /* nnb_ring_read_all */
              refresh_writer();
              if :: corrupt -> break :: else fi;
              count = SUB(peer_write, read_index) / QUANTUM;
              assert(HOSTILE || count > 0);
              if :: count == 0 -> break :: else fi;
              consume(count)
           :: true -> /* cut: what is there, then one packet by the size that it announces */
              refresh_writer();
              if :: corrupt || peer_write == read_index -> break :: else fi;
#if HOSTILE
              if :: count = 0 :: count = 1 :: count = CAP :: count = CAP + 1 fi;
#else
              count = announced[read_offset / QUANTUM];
#endif
              if
              :: count == 0 || count * QUANTUM > SUB(peer_write, read_index) -> break
              :: else
              fi;
              consume(count)
           fi;
           event_flag_notify(read_stored, NOT_FULL);
           if :: ENDS && late -> break :: else fi
        od;
        assert(HOSTILE || stop || late_now);
        reader_ended = true
    } unless { reader_dead }
}

proctype writer() {
    byte write_offset, peer_read, peer, seen, place, k;
    bool stop, timed_out, corrupt;
    {
        do
        :: if :: wanted = 1 :: wanted = LONGEST fi;
           do
           :: wanted * QUANTUM <= FREE -> break /* by the cached counter */
           :: else ->
              refresh_reader();
              if
              :: corrupt -> goto over
              :: wanted * QUANTUM <= FREE -> break
              :: else -> wait_writable();
                 if :: corrupt || stop || timed_out -> goto over :: else fi
              fi
           od;
           commit_write(wanted);
           announce();
           if :: ENDS && late -> break :: else fi
        :: !ENDS -> break /* nothing more to say */
        od;
over:
        writer_ended = true
    } unless { writer_dead }
}

/* Lets the stores out, in whatever order the two sides' come. */
proctype memory() {
    do
    :: atomic { write_stored -> write_counter = stored_write; write_stored = false }
    :: atomic { read_stored -> read_counter = stored_read; read_stored = false }
    od
}

proctype call(bool to_reader) {
    byte seen;
    bool nothing; /* its own stores are ordered by the read-modify-write */
    if
    :: to_reader -> reader_attention = true; event_flag_wake(nothing, READER_ATTENTION)
    :: else -> writer_attention = true; event_flag_wake(nothing, WRITER_ATTENTION)
    fi
}

proctype adversary() {
    do
#ifdef HOSTILE_WRITER
    :: write_counter = ADD(write_counter, 1)
    :: reader_asleep = false
#else
    :: read_counter = ADD(read_counter, 1)
    :: writer_asleep = false
#endif
#ifdef HOSTILE_WRITER
    :: flag = flag ^ READER_ATTENTION
#else
    :: flag = flag ^ WRITER_ATTENTION
#endif
    :: flag = flag ^ NOT_EMPTY
    :: flag = flag ^ NOT_FULL /* bits by themselves make any value after a while */
    od
}

/* When nothing can happen any more, no process sleeps that has something to do. */
proctype judge() {
    timeout;
    assert(!(reader_asleep && !reader_dead && write_counter != read_index));
    assert(!(in_loop && !reader_dead && (write_counter != read_index || writer_dead)));
    assert(!(writer_asleep && !writer_dead && SUB(write_index, read_counter) + wanted <= BYTES));
    assert(!(reader_asleep && !reader_dead && (reader_attention || writer_dead)));
    assert(!(writer_asleep && !writer_dead && (writer_attention || reader_dead)))
}

init {
    atomic {
#ifdef HOSTILE_WRITER
        run reader(); run adversary(); run memory();
#else
#ifdef HOSTILE_READER
        run writer(); run adversary(); run memory();
#else
        run reader(); run writer(); run memory(); run judge();
#endif
#endif
#ifdef CALL_READER
        run call(true);
#endif
#ifdef CALL_WRITER
        run call(false);
#endif
    };
#ifdef DEATH
    if :: reader_dead = true :: writer_dead = true :: true fi
#endif
#if HOSTILE
    late = true
#endif
}

#if ENDS
#ifdef HOSTILE_WRITER
ltl ends { [] (late -> <> reader_ended) }
#else
ltl ends { [] (late -> <> writer_ended) }
#endif
#endif
