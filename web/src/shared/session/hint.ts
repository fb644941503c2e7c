/** Spares public pages a request that would only say "nobody is signed in". Holds no secret. */
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
    // A browser that keeps nothing simply asks each time.
  }
}
