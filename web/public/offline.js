// An external file, because the content policy allows no inline script. The system's "online" only says that there is a
// network, so the service itself is asked.
const EVERY_MS = 3_000;

async function look() {
  try {
    const { ok } = await fetch("/api/health", { cache: "no-store" });
    if (ok) window.location.reload();
  } catch {
    // Still not connected.
  }
}

window.addEventListener("online", () => void look());
setInterval(() => void look(), EVERY_MS);
