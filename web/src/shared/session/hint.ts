/**
 * Remembers whether this browser was signed in, so that public pages can skip the session request. It is not
 * a secret.
 */
const KEY = "purser-signed-in";

export function hasSignedInBefore(): boolean {
  try {
    return localStorage.getItem(KEY) === "yes";
  } catch {
    return true;
  }
}

export function rememberSignedIn(isSignedIn: boolean): void {
  try {
    if (isSignedIn) localStorage.setItem(KEY, "yes");
    else localStorage.removeItem(KEY);
  } catch {
    // A browser without storage sends the session request each time.
  }
}
