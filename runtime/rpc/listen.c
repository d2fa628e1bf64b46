/* Addresses: where the server listens, and how it reaches a tracker. */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

static int resolve(const char *host, int port, int passive, struct addrinfo **out) {
  struct addrinfo hints;
  char service[16];
  memset(&hints, 0, sizeof hints);
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  snprintf(service, sizeof service, "%d", port);
  int code = getaddrinfo(host, service, &hints, out);
  if (!code) return 0;
  return sterna_set_errorf("OSError", "the host '%.200s' is not known: %s", host, gai_strerror(code));
}

static int is_loopback_address(const struct sockaddr *address) {
  if (address->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr) ? 1 : 0;
  return 0;
}

int is_loopback(const char *host) {
  struct addrinfo *found;
  int all = 1;
  if (resolve(host, 0, 1, &found)) return -1;
  for (const struct addrinfo *at = found; at; at = at->ai_next) all &= is_loopback_address(at->ai_addr);
  freeaddrinfo(found);
  return all;
}

static int open_socket(const struct addrinfo *at) {
  int file = socket(at->ai_family, at->ai_socktype, at->ai_protocol), on = 1;
  if (file < 0) return -1;
  fcntl(file, F_SETFD, FD_CLOEXEC);
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return file;
}

static int listen_on(const struct addrinfo *at, int *bound) {
  int file = open_socket(at), on = 1, code;
  if (file < 0) return -1;
  setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  struct sockaddr_storage name;
  socklen_t size = sizeof name;
  if (bind(file, at->ai_addr, at->ai_addrlen) || listen(file, 64) ||
      getsockname(file, (struct sockaddr *)&name, &size)) {
    code = errno;
    close(file);
    errno = code;
    return -1;
  }
  *bound = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&name)->sin6_port
                                            : ((struct sockaddr_in *)(void *)&name)->sin_port);
  return file;
}

int listen_at(const char *host, int port, int port_end, int *bound, int *out) {
  int code = EADDRINUSE;
  for (int tried = port; tried <= port_end; tried++) {
    struct addrinfo *found;
    if (resolve(host, tried, 1, &found)) return -1;
    int file = listen_on(found, bound);
    code = errno;
    freeaddrinfo(found);
    if (file >= 0) {
      *out = file;
      return 0;
    }
    if (code != EADDRINUSE && code != EACCES) break;
  }
  return sterna_set_errorf("OSError", "cannot listen at %.200s, ports %d to %d: %s", host, port, port_end,
                           strerror(code));
}

/* Connects one address before the deadline. */
static int connect_one(const struct addrinfo *at, uint64_t deadline) {
  int file = open_socket(at), code = 0;
  socklen_t size = sizeof code;
  if (file < 0) return -1;
  fcntl(file, F_SETFL, O_NONBLOCK);
  if (connect(file, at->ai_addr, at->ai_addrlen) == 0) return file;
  uint64_t now = clock_now();
  struct pollfd entry = {file, POLLOUT, 0};
  int left = deadline > now ? (int)((deadline - now) / 1000000) : 0;
  if (errno == EINPROGRESS && poll(&entry, 1, left) == 1 &&
      getsockopt(file, SOL_SOCKET, SO_ERROR, &code, &size) == 0 && code == 0)
    return file;
  close(file);
  errno = code ? code : ETIMEDOUT;
  return -1;
}

int connect_to(const char *host, int port, uint64_t deadline, int *out) {
  struct addrinfo *found;
  int file = -1, code = 0;
  if (resolve(host, port, 0, &found)) return -1;
  for (const struct addrinfo *at = found; at && file < 0; at = at->ai_next) {
    file = connect_one(at, deadline);
    code = errno;
  }
  freeaddrinfo(found);
  if (file < 0)
    return sterna_set_errorf("ConnectionError", "cannot reach %.200s:%d: %s", host, port, strerror(code));
  *out = file;
  return 0;
}

static void set_tcp(int socket, int option, int value) {
  setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
}

void listen_keep_alive(int socket) {
  int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#if defined(TCP_KEEPIDLE)
  set_tcp(socket, TCP_KEEPIDLE, 10);
#endif
#if defined(TCP_KEEPINTVL) && defined(TCP_KEEPCNT)
  set_tcp(socket, TCP_KEEPINTVL, 5);
  set_tcp(socket, TCP_KEEPCNT, 3);
#endif
#if defined(TCP_USER_TIMEOUT)
  set_tcp(socket, TCP_USER_TIMEOUT, 30000);
#endif
}
