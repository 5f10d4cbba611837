// Text for people, in the same words as the command line.

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)}s`;
  if (seconds < 59.5) return `${Math.round(seconds)}s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  const rest = Math.round(seconds) % 60;
  if (minutes < 60) return `${minutes}m ${String(rest).padStart(2, "0")}s`;
  return `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, "0")}m`;
}

export function dollars(cost) {
  if (cost === null || cost === undefined) return "?";
  return cost >= 0.1 || cost === 0 ? `$${cost.toFixed(2)}` : `$${cost.toFixed(4)}`;
}

export function tokens(number) {
  return number < 10000 ? String(number) : `${Math.round(number / 1000)}k`;
}

// `9k read from the cache, 2k written to it`; empty if the cache was not used.
export function cacheText(read, written) {
  const parts = [];
  if (read) parts.push(`${tokens(read)} read from the cache`);
  if (written) parts.push(`${tokens(written)} written to ${read ? "it" : "the cache"}`);
  return parts.join(", ");
}

export function count(number, singular, plural = `${singular}s`) {
  return `${number} ${number === 1 ? singular : plural}`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

export function day(seconds) {
  const date = new Date(seconds * 1000);
  const today = new Date();
  const time = date.toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit" });
  return date.toDateString() === today.toDateString() ? time : `${date.toLocaleDateString()} ${time}`;
}

export function ago(seconds, now) {
  const passed = Math.max(0, now - seconds);
  if (passed < 90) return "just now";
  if (passed < 3600) return `${Math.round(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.round(passed / 3600)} h ago`;
  return `${count(Math.round(passed / 86400), "day")} ago`;
}

// The colour of a state; the words stay next to it, so that nobody depends on the colour.
export function tone(state) {
  if (["approved", "finished", "finished by another run", "usable", "ended", "available"].includes(state)) return "good";
  if (["failed", "failed in another run", "killed", "quarantined"].includes(state)) return "bad";
  if (["running", "reserved"].includes(state)) return "live";
  if (["parked", "paused", "suspended", "stopping", "needs revision", "rate limited", "exhausted for the day", "interrupted"].includes(state)) return "warn";
  return "plain";
}

export function folderName(path) {
  return path ? path.split("/").filter(Boolean).pop() ?? path : "";
}

// What people call an item's state.
export function stateText(state) {
  return { parked: "waiting for you" }[state] ?? state;
}
