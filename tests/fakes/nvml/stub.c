/*
 * A stand-in for libnvidia-ml.so.1: it plays the machine that the file named by NVML_STUB_SCENARIO describes.
 *
 * The file is read again whenever it changes; counts of calls then begin anew. One word and its values a line:
 *
 *   driver VERSION
 *   device                       begins a card; the lines after it are about that card
 *   slice                        begins a MIG slice of the card above; likewise
 *   uuid ID | name TEXT | pci BUS_ID
 *   memory TOTAL FREE            bytes; without this line memory is "not supported"
 *   step N FREE                  from the N-th question about its memory on, FREE bytes are free
 *   process PID BYTES            a compute process that is listed; BYTES `-` when not told
 *   graphics PID BYTES           a graphics process that is listed
 *   alive PID BYTES              a compute process that takes BYTES of what is free for as long as it lives
 *   figure NAME VALUE            one number (see FIGURES below); without it the question is "not supported"
 *   nvlink LINK BUS_ID           an active link and where it leads
 *   error FUNCTION CODE [FROM [TO]]   that answer instead, for the calls FROM..TO (counted from 1), of this card, or of
 *                                     every card when it stands before the first `device`
 *   delay FUNCTION MILLISECONDS
 */

#include <signal.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       UNKNOWN = 999 };
enum { DEVICES = 16, SLICES = 8, PROCESSES = 32, STEPS = 32, LINKS = 18, FIGURES = 32, FAULTS = 64, TEXT = 96 };

typedef unsigned long long u64;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci_info;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { char kind; unsigned pid; u64 bytes; } holder;
typedef struct { unsigned long call; u64 free; } step;
typedef struct { char name[32]; u64 value; } figure;

typedef struct unit {
    char uuid[TEXT], name[TEXT], pci[32], links[LINKS][32];
    int has_memory, holders, steps, figures, slices;
    u64 total, free;
    unsigned long memory_calls;
    holder holder[PROCESSES];
    step step[STEPS];
    figure figure[FIGURES];
    struct unit *parent, *slice;
} unit;

typedef struct { char function[TEXT]; unit *of; int code; unsigned long from, to, calls, delay; } fault;

static unit cards[DEVICES], slices[DEVICES][SLICES];
static fault faults[FAULTS];
static int count, fault_count, initialised;
static char driver[TEXT];
static struct timespec seen_time;
static off_t seen_size = -1;
static ino_t seen_inode;

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static void read_line(char *line, unit **at) {
    char word[TEXT] = "", first[TEXT] = "", second[TEXT] = "", third[TEXT] = "", fourth[TEXT] = "";
    line[strcspn(line, "\r\n")] = 0;
    if (sscanf(line, "%95s %95s %95s %95s %95s", word, first, second, third, fourth) < 1 || word[0] == '#') return;
    char *rest = strstr(line, word) + strlen(word);
    rest += strspn(rest, " ");
    unit *now = *at;
    u64 number = strtoull(first, NULL, 0), value = second[0] == '-' ? ~0ULL : strtoull(second, NULL, 0);
    if (!strcmp(word, "driver")) copy(driver, sizeof driver, rest);
    else if (!strcmp(word, "device") && count < DEVICES) { *at = &cards[count]; cards[count].slice = slices[count]; count++; }
    else if (!strcmp(word, "slice") && count) {
        unit *card = &cards[count - 1];
        if (card->slices == SLICES) return;
        *at = &card->slice[card->slices++];
        (*at)->parent = card;
    } else if (!strcmp(word, "error") || !strcmp(word, "delay")) {
        if (fault_count == FAULTS) return;
        fault *made = &faults[fault_count++];
        copy(made->function, sizeof made->function, first);
        made->of = now;
        made->code = word[0] == 'e' ? atoi(second) : 0;
        made->delay = word[0] == 'd' ? strtoul(second, NULL, 0) : 0;
        made->from = third[0] ? strtoul(third, NULL, 0) : 1;
        made->to = fourth[0] ? strtoul(fourth, NULL, 0) : ~0UL;
    } else if (!now) return;
    else if (!strcmp(word, "uuid")) copy(now->uuid, sizeof now->uuid, first);
    else if (!strcmp(word, "name")) copy(now->name, sizeof now->name, rest);
    else if (!strcmp(word, "pci")) snprintf(now->pci, sizeof now->pci, "%.31s", first);
    else if (!strcmp(word, "memory")) { now->has_memory = 1; now->total = number; now->free = value; }
    else if (!strcmp(word, "step") && now->steps < STEPS) now->step[now->steps++] = (step){number, value};
    else if ((!strcmp(word, "process") || !strcmp(word, "graphics") || !strcmp(word, "alive")) && now->holders < PROCESSES)
        now->holder[now->holders++] = (holder){word[0], (unsigned)number, value};
    else if (!strcmp(word, "figure") && now->figures < FIGURES) {
        figure *made = &now->figure[now->figures++];
        snprintf(made->name, sizeof made->name, "%.31s", first);
        made->value = value;
    } else if (!strcmp(word, "nvlink") && number < LINKS) snprintf(now->links[number], 32, "%.31s", second);
}

static void load(void) {
    const char *path = getenv("NVML_STUB_SCENARIO");
    struct stat seen;
    if (!path || stat(path, &seen)) return;
    if (seen.st_size == seen_size && seen.st_ino == seen_inode && !memcmp(&seen.st_mtim, &seen_time, sizeof seen_time))
        return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    seen_size = seen.st_size; seen_inode = seen.st_ino; seen_time = seen.st_mtim;
    memset(cards, 0, sizeof cards); memset(slices, 0, sizeof slices); memset(faults, 0, sizeof faults);
    count = fault_count = 0;
    copy(driver, sizeof driver, "0");
    char line[512];
    unit *at = NULL;
    while (fgets(line, sizeof line, file)) read_line(line, &at);
    fclose(file);
}

/* What every function does first: waits and fails as the scenario says. */
static int begin(const char *function, unit *of) {
    load();
    int answer = SUCCESS;
    for (int i = 0; i < fault_count; i++) {
        fault *one = &faults[i];
        if (strcmp(one->function, function) || (one->of && one->of != of)) continue;
        one->calls++;
        if (one->calls < one->from || one->calls > one->to) continue;
        if (one->delay) usleep((useconds_t)one->delay * 1000);
        if (one->code) answer = one->code;
    }
    if (answer) return answer;
    if (!initialised && strncmp(function, "nvmlInit", 8)) return UNINITIALIZED;
    return SUCCESS;
}

#define BEGIN(of) do { int answer_ = begin(__func__, (of)); if (answer_) return answer_; } while (0)

static int is_alive(const holder *one) { return !kill((pid_t)one->pid, 0) || errno == EPERM; }

static u64 free_now(unit *of) {
    u64 free = of->free;
    for (int i = 0; i < of->steps; i++) if (of->memory_calls >= of->step[i].call) free = of->step[i].free;
    for (int i = 0; i < of->holders; i++)
        if (of->holder[i].kind == 'a' && is_alive(&of->holder[i])) free -= of->holder[i].bytes < free ? of->holder[i].bytes : free;
    return free;
}

static int list(unit *of, int graphics, unsigned *size, process_info *into) {
    unsigned found = 0;
    for (int i = 0; i < of->holders; i++) {
        holder *one = &of->holder[i];
        if ((one->kind == 'g') != graphics || (one->kind == 'a' && !is_alive(one))) continue;
        if (into && found < *size) into[found] = (process_info){one->pid, one->bytes, ~0U, ~0U};
        found++;
    }
    int fits = found <= *size && (into || !found);
    *size = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

static int number(unit *of, const char *name, unsigned *into) {
    for (int i = 0; i < of->figures; i++)
        if (!strcmp(of->figure[i].name, name)) { *into = (unsigned)of->figure[i].value; return SUCCESS; }
    return NOT_SUPPORTED;
}

static void bus(const char *text, pci_info *into) {
    memset(into, 0, sizeof *into);
    snprintf(into->text, sizeof into->text, "%s", text);
    snprintf(into->legacy, sizeof into->legacy, "%.15s", strlen(text) > 12 ? text + 4 : text);
    sscanf(text, "%x:%x:%x", &into->domain, &into->bus, &into->device);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; BEGIN(NULL); initialised++; return SUCCESS; }
int nvmlInit_v2(void) { BEGIN(NULL); initialised++; return SUCCESS; }
int nvmlShutdown(void) { BEGIN(NULL); initialised--; return SUCCESS; }
const char *nvmlErrorString(int code) { return code == UNKNOWN ? "Unknown Error" : "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *into, unsigned size) { BEGIN(NULL); copy(into, size, driver); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *into) { BEGIN(NULL); *into = (unsigned)count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, unit **into) {
    BEGIN(index < DEVICES ? &cards[index] : NULL);
    if (index >= (unsigned)count) return INVALID_ARGUMENT;
    *into = &cards[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(unit *of, char *into, unsigned size) { BEGIN(of); copy(into, size, of->uuid); return SUCCESS; }
int nvmlDeviceGetName(unit *of, char *into, unsigned size) { BEGIN(of); copy(into, size, of->name); return SUCCESS; }
int nvmlDeviceGetPciInfo_v3(unit *of, pci_info *into) {
    BEGIN(of);
    bus(of->parent ? of->parent->pci : of->pci, into);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(unit *of, memory_v1 *into) {
    BEGIN(of);
    if (!of->has_memory) return NOT_SUPPORTED;
    of->memory_calls++;
    u64 free = free_now(of);
    *into = (memory_v1){of->total, free, of->total - free};
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(unit *of, unsigned *size, process_info *into) {
    BEGIN(of);
    return list(of, 0, size, into);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(unit *of, unsigned *size, process_info *into) {
    BEGIN(of);
    return list(of, 1, size, into);
}

int nvmlDeviceGetUtilizationRates(unit *of, unsigned into[2]) {
    BEGIN(of);
    int answer = number(of, "util_gpu", &into[0]);
    return answer ? answer : number(of, "util_memory", &into[1]);
}
int nvmlDeviceGetPowerUsage(unit *of, unsigned *into) { BEGIN(of); return number(of, "power_milliwatts", into); }
int nvmlDeviceGetEnforcedPowerLimit(unit *of, unsigned *into) { BEGIN(of); return number(of, "power_limit_milliwatts", into); }
int nvmlDeviceGetTemperature(unit *of, int sensor, unsigned *into) {
    BEGIN(of);
    return sensor ? INVALID_ARGUMENT : number(of, "temperature_celsius", into);
}
int nvmlDeviceGetClockInfo(unit *of, unsigned kind, unsigned *into) {
    static const char *names[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
    BEGIN(of);
    return kind > 3 ? INVALID_ARGUMENT : number(of, names[kind], into);
}
static int reasons(unit *of, u64 *into) {
    unsigned bits = 0;
    int answer = number(of, "throttle_bits", &bits);
    *into = bits;
    return answer;
}
int nvmlDeviceGetCurrentClocksEventReasons(unit *of, u64 *into) { BEGIN(of); return reasons(of, into); }
int nvmlDeviceGetCurrentClocksThrottleReasons(unit *of, u64 *into) { BEGIN(of); return reasons(of, into); }
int nvmlDeviceGetCurrPcieLinkGeneration(unit *of, unsigned *into) { BEGIN(of); return number(of, "pcie_generation", into); }
int nvmlDeviceGetMaxPcieLinkGeneration(unit *of, unsigned *into) { BEGIN(of); return number(of, "pcie_generation_max", into); }
int nvmlDeviceGetCurrPcieLinkWidth(unit *of, unsigned *into) { BEGIN(of); return number(of, "pcie_width", into); }
int nvmlDeviceGetMaxPcieLinkWidth(unit *of, unsigned *into) { BEGIN(of); return number(of, "pcie_width_max", into); }
int nvmlDeviceGetPcieThroughput(unit *of, unsigned counter, unsigned *into) {
    BEGIN(of);
    return number(of, counter ? "pcie_received_kilobytes" : "pcie_sent_kilobytes", into);
}

static int has_links(unit *of) {
    for (int i = 0; i < LINKS; i++) if (of->links[i][0]) return 1;
    return 0;
}
int nvmlDeviceGetNvLinkState(unit *of, unsigned link, unsigned *into) {
    BEGIN(of);
    if (!has_links(of)) return NOT_SUPPORTED;
    if (link >= LINKS) return INVALID_ARGUMENT;
    *into = of->links[link][0] != 0;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(unit *of, unsigned link, pci_info *into) {
    BEGIN(of);
    if (link >= LINKS || !of->links[link][0]) return NOT_SUPPORTED;
    bus(of->links[link], into);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(unit *of, unsigned *current, unsigned *pending) {
    BEGIN(of);
    unsigned set = 0;
    if (!of->slices && number(of, "mig", &set)) return NOT_SUPPORTED;
    *current = *pending = of->slices || set;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(unit *of, unsigned *into) { BEGIN(of); *into = SLICES; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(unit *of, unsigned index, unit **into) {
    BEGIN(of);
    if (index >= (unsigned)of->slices) return NOT_FOUND;
    *into = &of->slice[index];
    return SUCCESS;
}
