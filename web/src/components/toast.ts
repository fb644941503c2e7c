import { notifications } from "@mantine/notifications";
import { ApiError } from "../lib/api.ts";

/** For a failed action whose button has no place for the error. */
export const toastFailure =
  (title: string) =>
  (error: Error): void => {
    if (error instanceof ApiError && error.isWaiting)
      notifications.show({ title: "Waits for more signatures", message: error.message });
    else notifications.show({ color: "red", title, message: error.message });
  };
