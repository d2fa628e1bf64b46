/* A small test harness: named cases, checks that count, an allocator that watches the runtime. */
#ifndef STERNA_CHECK_H_
#define STERNA_CHECK_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sterna.h"

typedef struct {
  const char *name;
  void (*run)(void);
} test_case;

/* Runs the named cases, or all; 0 when every check held. After each case the runtime is shut down
   and must have given all of its memory back. */
int check_main(int argc, char **argv, const test_case *cases, size_t count);
#define CASES(list) check_main(argc, argv, list, sizeof list / sizeof *list)

/* 1 when it held; otherwise says where, counts a failure and gives 0. */
int check_that(int held, const char *file, int line, const char *what);
#define check(what) check_that((what) ? 1 : 0, __FILE__, __LINE__, #what)

int check_failed_call(int result, const char *kind, const char *part, const char *file, int line,
                      const char *what);
/* The call must give -1 and an error of this kind whose message holds part. */
#define check_fails(call, kind, part) check_failed_call(call, kind, part, __FILE__, __LINE__, #call)

int check_same_text(const char *a, const char *b, const char *file, int line, const char *what);
#define check_text(a, b) check_same_text(a, b, __FILE__, __LINE__, #a " is " #b)

/* The allocator that check_main gives the runtime. */
long check_live(void);        /* blocks handed out and not given back */
long check_allocations(void); /* asked for so far */
/* From now on the n-th allocation fails, and with forever set every one after it; 0: none does. */
void check_fail_at(long n, int forever);
int check_has_failed(void); /* an allocation was refused since check_fail_at */

/* A fresh folder for the case's files, removed when the program ends, and files in it. */
const char *check_folder(void);
char *check_path(const char *name);            /* in that folder; release with free() */
char *check_library(const char *name);         /* a library that the driver built; free() */
void check_copy(const char *from, const char *to); /* by way of a rename: a new file at to */
void check_overwrite(const char *from, const char *to); /* into the file that is there */
void check_write(const char *path, const void *data, size_t size);
char *check_read(const char *path, size_t *size); /* free() */

/* The exit status of a child that runs body, or minus the signal that ended it. */
int check_child(int (*body)(void *data), void *data);

void check_sleep(long microseconds);
double check_seconds(void);
uint64_t check_random(void); /* always the same sequence */

#endif
