import { notifications } from "@mantine/notifications";

/** For a failed action whose button has no place for the error. */
export const toastFailure =
  (title: string) =>
  (error: Error): void => {
    notifications.show({ color: "red", title, message: error.message });
  };
