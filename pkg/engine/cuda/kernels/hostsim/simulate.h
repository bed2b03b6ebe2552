// Runs a kernel on the host: the threads of a block are fibers of one OS thread, in
// a fixed order, switched at barriers and shuffles only. Included after the kernels.
//
// A fault (a guard page, a trap of g++'s checks) ends the launch with a message
// instead of the process: the launch runs on an OS thread of its own, whose signal
// handler jumps out of the kernel. Signals of other threads go on to the handlers
// that were there, which are Go's.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <utility>
#if !defined(__x86_64__) || defined(SIM_UCONTEXT)
#define SIM_UCONTEXT 1
#include <ucontext.h>
#endif

enum SimState : unsigned char { sim_new, sim_ready, sim_at_barrier, sim_at_shuffle, sim_done };

enum { sim_max_threads = 1024, sim_stack = 64 << 10 };

struct SimFiber {
#ifdef SIM_UCONTEXT
  ucontext_t context;
#else
  void *sp;
#endif
};

struct SimEntry {
  const char *name;
  void *function;
  void (*call)(void *function, const unsigned char *args);
  int (*sizes)(uint32_t *sizes, int most);
};

static SimFiber sim_fibers[sim_max_threads], sim_scheduler;
static SimState sim_states[sim_max_threads];
static int sim_stack_of[sim_max_threads];
static unsigned char *sim_stacks;
static int sim_free_stacks[sim_max_threads], sim_free_count;
static float sim_slots[2][sim_max_threads];
static unsigned char sim_parity[sim_max_threads];
static int sim_current, sim_threads;
// The threads of a block run in passes over all of them. sim_passed threads of the current
// pass have had their turn, and sim_ended threads of the block have ended.
static int sim_passed, sim_ended;
static bool sim_reversed;
static const SimEntry *sim_entry;
static const unsigned char *sim_args;

#ifdef SIM_UCONTEXT
static void sim_switch(SimFiber *from, SimFiber *to) { swapcontext(&from->context, &to->context); }
#else
// The registers that a call must preserve, System V ABI for x86-64.
extern "C" void sim_swap(void **save, void *load);
asm(".text\n.globl sim_swap\n.hidden sim_swap\n.type sim_swap,@function\nsim_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size sim_swap,.-sim_swap\n");
static void sim_switch(SimFiber *from, SimFiber *to) { sim_swap(&from->sp, to->sp); }
#endif

static void sim_set_index(int t) {
  if (blockDim.y == 1 && blockDim.z == 1) {
    threadIdx = SimIndex{(unsigned)t, 0, 0};
    return;
  }
  threadIdx.x = t % blockDim.x;
  threadIdx.y = t / blockDim.x % blockDim.y;
  threadIdx.z = t / blockDim.x / blockDim.y;
}

// sim_next makes the next thread of the pass that can run the current one. It returns false
// at the end of the pass.
static bool sim_next() {
  while (sim_passed < sim_threads) {
    int t = sim_reversed ? sim_threads - 1 - sim_passed : sim_passed;
    sim_passed++;
    if (sim_states[t] != sim_new && sim_states[t] != sim_ready) continue;
    sim_current = t;
    sim_set_index(t);
    return true;
  }
  return false;
}

// sim_main runs a thread to its end. The threads that have not begun and follow at once run
// on the same stack, without a switch.
static void sim_main() {
  for (;;) {
    sim_entry->call(sim_entry->function, sim_args);
    int self = sim_current;
    sim_states[self] = sim_done;
    sim_ended++;
    bool next = sim_next();
    if (next && sim_states[sim_current] == sim_new) {
      sim_stack_of[sim_current] = sim_stack_of[self];
      continue;
    }
    sim_free_stacks[sim_free_count++] = sim_stack_of[self]; // nobody takes it before the switch
    sim_switch(&sim_fibers[self], next ? &sim_fibers[sim_current] : &sim_scheduler);
  }
}

static void sim_start(int t) {
  sim_stack_of[t] = sim_free_stacks[--sim_free_count];
  unsigned char *stack = sim_stacks + (size_t)sim_stack_of[t] * sim_stack;
#ifdef SIM_UCONTEXT
  getcontext(&sim_fibers[t].context);
  sim_fibers[t].context.uc_stack.ss_sp = stack;
  sim_fibers[t].context.uc_stack.ss_size = sim_stack;
  sim_fibers[t].context.uc_link = 0;
  makecontext(&sim_fibers[t].context, sim_main, 0);
#else
  void **top = reinterpret_cast<void **>(stack + sim_stack);
  *--top = 0; // where sim_main would return to; aligns its frame as a call does
  *--top = reinterpret_cast<void *>(sim_main);
  top -= 6;
  memset(top, 0, 6 * sizeof *top);
  sim_fibers[t].sp = top;
#endif
}

// sim_resume switches from a fiber to the next thread of the pass, or to the scheduler at the
// end of the pass.
static void sim_resume(SimFiber *from) {
  if (!sim_next()) {
    if (from != &sim_scheduler) sim_switch(from, &sim_scheduler);
    return;
  }
  if (sim_states[sim_current] == sim_new) sim_start(sim_current);
  sim_switch(from, &sim_fibers[sim_current]);
}

// sim_wait lets other threads run until it is this thread's turn again.
static void sim_wait(SimState state) {
  sim_states[sim_current] = state;
  sim_resume(&sim_fibers[sim_current]);
}
static void sim_sync() { sim_wait(sim_at_barrier); }

struct SimFault {
  sigjmp_buf out;
  char *message;
  size_t message_size;
};
static __thread SimFault *sim_fault; // of the OS thread that runs a launch

static void sim_fail(const char *format, ...) {
  char what[256];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  snprintf(sim_fault->message, sim_fault->message_size, "block (%u,%u,%u) of (%u,%u,%u), thread (%u,%u,%u) of (%u,%u,%u): %s",
           blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z,
           threadIdx.x, threadIdx.y, threadIdx.z, blockDim.x, blockDim.y, blockDim.z, what);
  siglongjmp(sim_fault->out, 1);
}

static float sim_shuffle_xor(float v, int distance) {
  int self = sim_current, other = self ^ distance;
  if (distance >= 32 || distance < 0) sim_fail("shuffles over %d lanes: a warp has 32", distance);
  if ((self | 31) >= sim_threads) sim_fail("shuffles in a warp that the block fills only in part");
  // Two sets of slots in turn: a thread may be at most one shuffle ahead.
  float *slots = sim_slots[sim_parity[self] ^= 1];
  slots[self] = v;
  sim_wait(sim_at_shuffle);
  return slots[other];
}

// sim_release lets those go on who wait for nobody any more.
static bool sim_release() {
  bool released = false;
  int waiting = 0;
  for (int first = 0; first < sim_threads; first += 32) {
    int last = first + 32 < sim_threads ? first + 32 : sim_threads, shuffles = 0;
    for (int t = first; t < last; t++) {
      shuffles += sim_states[t] == sim_at_shuffle;
      waiting += sim_states[t] == sim_at_barrier;
    }
    if (shuffles == last - first) {
      for (int t = first; t < last; t++) sim_states[t] = sim_ready;
      released = true;
    }
  }
  if (waiting == sim_threads) {
    for (int t = 0; t < sim_threads; t++) sim_states[t] = sim_ready;
    return true;
  }
  return released;
}

static void sim_block() {
  for (int t = 0; t < sim_threads; t++) sim_states[t] = sim_new, sim_free_stacks[t] = t;
  sim_free_count = sim_threads;
  sim_ended = 0;
  memset(sim_parity, 0, sim_threads);
  for (;;) {
    sim_passed = 0;
    sim_resume(&sim_scheduler);
    if (sim_ended == sim_threads) return;
    if (!sim_release()) {
      for (int t = 0; t < sim_threads; t++) {
        if (sim_states[t] == sim_done) continue;
        sim_set_index(t);
        sim_fail(sim_states[t] == sim_at_barrier ? "waits at a barrier that other threads of the block never reach"
                                                 : "waits in a shuffle that other threads of its warp never reach");
      }
    }
  }
}

static const int sim_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
enum { sim_signal_count = 4 };
static struct sigaction sim_before[sim_signal_count];

static void sim_handler(int signal, siginfo_t *info, void *context) {
  if (sim_fault) {
    switch (signal) {
    case SIGILL:
    case SIGFPE:
      sim_fail("a misaligned access or another undefined operation (an overflow, a division by 0)");
    default:
      sim_fail("accesses address %p, which is no memory of the launch", info->si_addr);
    }
  }
  for (int i = 0; i < sim_signal_count; i++) {
    if (sim_signals[i] != signal) continue;
    struct sigaction *old = &sim_before[i];
    if (old->sa_flags & SA_SIGINFO) {
      old->sa_sigaction(signal, info, context);
    } else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
      old->sa_handler(signal);
    } else {
      sigaction(signal, old, 0); // comes again, to whom it belongs
    }
  }
}

struct SimLaunch {
  const uint32_t *grid, *block;
  uint32_t shared;
  int reverse, result;
  SimFault fault;
};

static void *sim_thread(void *p) {
  SimLaunch *launch = static_cast<SimLaunch *>(p);
  static unsigned char alternate[64 << 10];
  stack_t stack = {};
  stack.ss_sp = alternate;
  stack.ss_size = sizeof alternate;
  sigaltstack(&stack, 0);
  sigset_t faults;
  sigemptyset(&faults);
  for (int i = 0; i < sim_signal_count; i++) sigaddset(&faults, sim_signals[i]);
  pthread_sigmask(SIG_UNBLOCK, &faults, 0);

  // Shared memory ends at a page that nobody may touch.
  size_t page = 4096, room = (launch->shared + page - 1) / page * page;
  unsigned char *memory = static_cast<unsigned char *>(mmap(0, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (room) mprotect(memory + page, room, PROT_READ | PROT_WRITE);
  sim_shared = memory + page + room - (launch->shared + 15) / 16 * 16;
  // The stacks stay for the launches that follow, one at a time: to map and clear
  // them anew for each took more time than most kernels.
  if (!sim_stacks) sim_stacks = static_cast<unsigned char *>(mmap(0, (size_t)sim_max_threads * sim_stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

  sim_fault = &launch->fault;
  sim_reversed = launch->reverse;
  if (sigsetjmp(launch->fault.out, 0) == 0) {
    uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    for (uint64_t i = 0; i < blocks; i++) {
      uint64_t b = launch->reverse ? blocks - 1 - i : i;
      blockIdx.x = b % gridDim.x;
      blockIdx.y = b / gridDim.x % gridDim.y;
      blockIdx.z = b / gridDim.x / gridDim.y;
      memset(memory + page, 0xff, room); // NaN
      sim_block();
    }
  } else {
    launch->result = 1;
  }
  sim_fault = 0;
  munmap(memory, room + 2 * page);
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, 0);
  return 0;
}

// The table of kernels: how each takes its arguments is what the compiler says of
// its parameters, not what the registry says. (std::tuple and std::apply would double the time
// that g++ takes.)
template <class V> static const unsigned char *sim_place(const unsigned char *base, size_t &at) {
  at = (at + alignof(V) - 1) / alignof(V) * alignof(V);
  const unsigned char *place = base + at;
  at += sizeof(V);
  return place;
}
template <class V> static V sim_read(const unsigned char *place) {
  V v;
  memcpy(&v, place, sizeof v);
  return v;
}
template <class... A> struct SimCall {
  template <size_t... I> static void apply(void *function, const unsigned char *const *places, std::index_sequence<I...>) {
    reinterpret_cast<void (*)(A...)>(function)(sim_read<A>(places[I])...);
  }
  static void call(void *function, const unsigned char *args) {
    size_t at = 0;
    const unsigned char *places[] = {sim_place<A>(args, at)...}; // braces: from left to right
    apply(function, places, std::make_index_sequence<sizeof...(A)>());
  }
  static int sizes(uint32_t *to, int most) {
    uint32_t all[] = {(uint32_t)sizeof(A)...};
    int n = (int)(sizeof all / sizeof *all);
    for (int i = 0; i < n && i < most; i++) to[i] = all[i];
    return n;
  }
};
template <class... A> static SimEntry sim_make(const char *name, void (*f)(A...)) {
  return SimEntry{name, reinterpret_cast<void *>(f), SimCall<A...>::call, SimCall<A...>::sizes};
}

static const SimEntry *sim_find(const char *name);

// sim_params writes the sizes of a kernel's parameters and returns how many it has,
// -1 without such a kernel.
extern "C" int sim_params(const char *name, uint32_t *sizes, int most) {
  const SimEntry *entry = sim_find(name);
  return entry ? entry->sizes(sizes, most) : -1;
}

// sim_run runs a launch to its end: 0, or 1 and a message. One at a time.
extern "C" int sim_run(const char *name, const uint32_t *grid, const uint32_t *block, uint32_t shared, const unsigned char *args, int reverse, char *message, size_t message_size) {
  SimLaunch launch = {};
  launch.grid = grid, launch.block = block, launch.shared = shared, launch.reverse = reverse;
  launch.fault.message = message, launch.fault.message_size = message_size;
  sim_entry = sim_find(name);
  if (!sim_entry) {
    snprintf(message, message_size, "there is no such kernel");
    return 1;
  }
  gridDim = SimIndex{grid[0], grid[1], grid[2]};
  blockDim = SimIndex{block[0], block[1], block[2]};
  sim_threads = (int)(block[0] * block[1] * block[2]);
  sim_args = args;

  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); // the new thread gets no signal of Go's
  struct sigaction action = {};
  action.sa_sigaction = sim_handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (int i = 0; i < sim_signal_count; i++) sigaction(sim_signals[i], &action, &sim_before[i]);
  pthread_t thread;
  int failed = pthread_create(&thread, 0, sim_thread, &launch);
  if (!failed) pthread_join(thread, 0);
  for (int i = 0; i < sim_signal_count; i++) sigaction(sim_signals[i], &sim_before[i], 0);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  if (failed) {
    snprintf(message, message_size, "no thread can be started");
    return 1;
  }
  return launch.result;
}
