import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { RouterProvider } from "react-router";
import { queryClient } from "../lib/query-client.ts";
import { router } from "./router.tsx";
import { colorSchemeManager, theme } from "./theme.ts";

/** Mantine's runtime <style> tags are off: the Content-Security-Policy allows styles from files only. */
export function App(): ReactNode {
  return (
    <MantineProvider
      theme={theme}
      colorSchemeManager={colorSchemeManager}
      defaultColorScheme="auto"
      withCssVariables={false}
      withGlobalClasses={false}
    >
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
        <Notifications position="bottom-right" autoClose={6000} containerWidth={380} />
      </QueryClientProvider>
    </MantineProvider>
  );
}
