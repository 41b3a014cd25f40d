"""URLs: the admin, a redirect to it, and the webhooks of the bank and the carrier."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from example_project.shop import views

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("webhooks/payment/", views.payment),
    path("webhooks/parcel-scan/", views.parcel_scan),
]
