/**
 * The repository's folder, or the image's. The compiled code in server/dist is two levels below it, and so must this
 * file be.
 */
export const ROOT = new URL("../../", import.meta.url);
